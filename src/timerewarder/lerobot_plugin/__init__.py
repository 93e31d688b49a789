"""Every timerewarder model as a reward model of LeRobot, of type `timerewarder`.

LeRobot (0.6 or later) imports this package with `--reward_model.discover_packages_path=timerewarder.lerobot_plugin`, or
a program of your own does. It then finds the parts by their names: `TimeRewarderConfig`, `TimeRewarderRewardModel` and
`make_timerewarder_pre_post_processors`, in the modules configuration_, modeling_ and processor_timerewarder.
"""

try:
    import lerobot.configs.rewards  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"timerewarder.lerobot_plugin needs LeRobot 0.6 or later ({error}): "
        "pip install 'timerewarder[lerobot-plugin]', with Python 3.12 or later"
    ) from error

from timerewarder.lerobot_plugin.configuration_timerewarder import TimeRewarderConfig
from timerewarder.lerobot_plugin.modeling_timerewarder import TimeRewarderRewardModel
from timerewarder.lerobot_plugin.processor_timerewarder import make_timerewarder_pre_post_processors

__all__ = ["TimeRewarderConfig", "TimeRewarderRewardModel", "make_timerewarder_pre_post_processors"]
