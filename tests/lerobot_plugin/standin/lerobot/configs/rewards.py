import abc
import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar


class ChoiceRegistry:
    """draccus's: classes by the value of `type`."""

    choices: ClassVar[dict[str, type]] = {}

    @classmethod
    def register_subclass(cls, name, choice_type=None):
        def register(subclass):
            assert cls.choices.get(name, subclass) is subclass, f"{name} is registered twice"
            cls.choices[name] = subclass
            return subclass

        return register

    @classmethod
    def get_choice_class(cls, name):
        return cls.choices[name]

    @classmethod
    def get_known_choices(cls):
        return cls.choices

    @classmethod
    def get_choice_name(cls, subcls):
        return next(name for name, choice in cls.choices.items() if choice is subcls)


class HubMixin:
    def save_pretrained(self, save_directory, *, repo_id=None, push_to_hub=False, card_kwargs=None, **kwargs):
        Path(save_directory).mkdir(parents=True, exist_ok=True)
        self._save_pretrained(Path(save_directory))


@dataclass
class RewardModelConfig(ChoiceRegistry, HubMixin, abc.ABC):
    input_features: dict[str, Any] = field(default_factory=dict)
    output_features: dict[str, Any] = field(default_factory=dict)
    device: str | None = None
    pretrained_path: str | None = None
    pretrained_revision: str | None = None
    push_to_hub: bool = False
    repo_id: str | None = None
    license: str | None = None
    tags: list[str] | None = None
    private: bool | None = None

    def __post_init__(self) -> None:
        self.device = self.device or "cpu"

    @property
    def type(self) -> str:
        return self.get_choice_name(self.__class__)

    @property
    def observation_delta_indices(self):
        return None

    def _save_pretrained(self, save_directory):
        values = {"type": self.type, **dataclasses.asdict(self)}
        (save_directory / "config.json").write_text(json.dumps(values, indent=4))

    @classmethod
    def from_pretrained(
        cls,
        pretrained_name_or_path,
        *,
        force_download=False,
        resume_download=None,
        proxies=None,
        token=None,
        cache_dir=None,
        local_files_only=False,
        revision=None,
        **reward_kwargs,
    ):
        values = json.loads(Path(pretrained_name_or_path, "config.json").read_text())
        return cls.get_choice_class(values.pop("type"))(**values)  # an unknown key is an error
