#!/bin/sh
# Make sure that the tests of the server's page have a browser: Chromium or Chrome. Installs Debian's as root,
# otherwise says what to install.
set -eu

for name in chromium chromium-browser google-chrome google-chrome-stable; do
  if command -v "$name" >/dev/null; then exit 0; fi
done

if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] && apt-get update -qq && apt-cache show chromium >/dev/null 2>&1; then
  echo "Installing chromium (the tests of the server's page run in it)"
  export DEBIAN_FRONTEND=noninteractive
  apt-get install -y -qq --no-install-recommends chromium >/dev/null
elif command -v apt-get >/dev/null; then
  echo "The tests of the server's page need Chromium or Chrome. Install it, then run make again:" >&2
  echo "  sudo apt-get install -y chromium" >&2
  exit 2
else
  echo "The tests of the server's page need Chromium or Chrome: install one with your package manager, then run make again." >&2
  exit 2
fi
