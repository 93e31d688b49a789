import importlib
import pkgutil


class PluginLoadError(Exception):
    pass


def load_plugin(plugin_path):
    """What `--reward_model.discover_packages_path` does: import the package and every module directly in it."""
    try:
        package = importlib.import_module(plugin_path)
        for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            importlib.import_module(module.name)
    except ImportError as error:
        raise PluginLoadError(str(error)) from error
