import abc

from torch import nn

from lerobot.configs.rewards import HubMixin, RewardModelConfig


class PreTrainedRewardModel(nn.Module, HubMixin, abc.ABC):
    config_class: None
    name: None

    def __init__(self, config, *inputs, **kwargs):
        super().__init__()
        if not isinstance(config, RewardModelConfig):
            raise ValueError("config must be a RewardModelConfig")
        self.config = config

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        for needed in ("config_class", "name"):
            if not getattr(cls, needed, None):
                raise TypeError(f"Class {cls.__name__} must define '{needed}'")

    @classmethod
    def from_pretrained(
        cls,
        pretrained_name_or_path,
        *,
        config=None,
        force_download=False,
        resume_download=None,
        proxies=None,
        token=None,
        cache_dir=None,
        local_files_only=False,
        revision=None,
        strict=False,
        **kwargs,
    ):
        raise NotImplementedError

    def get_optim_params(self):
        return self.parameters()

    def reset(self):
        pass

    @abc.abstractmethod
    def compute_reward(self, batch): ...

    def forward(self, batch):
        raise NotImplementedError(f"{self.__class__.__name__} is not trainable")

    @property
    def is_trainable(self):
        return type(self).forward is not PreTrainedRewardModel.forward
