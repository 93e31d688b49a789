#!/bin/sh
# Make sure that MuJoCo can render without a screen: EGL or OSMesa. Installs the libraries as root on Debian and Ubuntu,
# otherwise says what to install.
set -eu

[ "$(uname)" = Linux ] || exit 0  # macOS renders through its own OpenGL

has() { ldconfig -p 2>/dev/null | grep -q "$1" || find /usr/lib /usr/local/lib -name "$1*" 2>/dev/null | grep -q .; }
mesa() { find /usr/lib /usr/local/lib \( -name 'swrast_dri.so' -o -name 'libgallium*.so' \) 2>/dev/null | grep -q .; }

if has libOSMesa.so; then exit 0; fi
if has libEGL.so.1 && { mesa || [ -e /proc/driver/nvidia/version ]; }; then exit 0; fi

packages="libegl1 libgl1 libgl1-mesa-dri"
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
  echo "Installing $packages (headless OpenGL for rendering)"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq && apt-get install -y -qq --no-install-recommends $packages >/dev/null
elif command -v apt-get >/dev/null; then
  echo "Rendering needs OpenGL libraries that are missing here. Install them, then run make again:" >&2
  echo "  sudo apt-get install -y $packages" >&2
  exit 2
else
  echo "Rendering needs libEGL with Mesa's drivers, or libOSMesa: install them with your package manager, then run make again." >&2
  exit 2
fi
