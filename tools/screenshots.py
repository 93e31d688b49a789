"""Pictures of the server's page for the documentation: light, dark, and a phone's width.

    timerewarder serve MODEL... --port 8000
    python tools/screenshots.py http://127.0.0.1:8000 docs VIDEO...

The first picture shows all videos, the second and third the one that ends highest. Needs Chromium (tools/chromium.sh).
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> str:
    """The browser's program; an error with the remedy if there is none."""
    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if found is None:
        raise FileNotFoundError("Chromium is missing: run `sh tools/chromium.sh`, or apt-get install chromium")
    return found


def take(browser: Browser, url: str, out: Path, videos: Sequence[Path]) -> list[Path]:
    """Upload the videos and write page-light.png, page-dark.png and page-phone.png into `out`."""
    page = browser.new_page(viewport={"width": 1280, "height": 760}, color_scheme="light", reduced_motion="reduce")
    page.goto(url)
    page.set_input_files("#files", videos)
    _wait_for_cards(page, len(videos))
    page.wait_for_function("n => document.querySelectorAll('canvas[data-drawn]').length === n", arg=len(videos))
    taken = [_save(page, out / "page-light.png")]
    page.close()
    for name, size, scheme in (("dark", (1280, 1150), "dark"), ("phone", (375, 812), "light")):
        shape = {"width": size[0], "height": size[1]}
        context = browser.new_context(
            viewport=shape, color_scheme=scheme, device_scale_factor=1 if name == "dark" else 2
        )
        page = context.new_page()
        page.goto(url)
        _wait_for_cards(page, len(videos))
        page.select_option("#order", "high")
        page.locator(".card a[href]").first.click()
        _show_middle(page)
        if name == "dark":
            box = page.locator("#curve").bounding_box()
            assert box is not None
            page.mouse.move(box["x"] + 0.72 * box["width"], box["y"] + 0.5 * box["height"])
            page.wait_for_function("() => tip.dataset.frame === tip.firstChild.dataset.frame")
        taken.append(_save(page, out / f"page-{name}.png"))
        context.close()
    return taken


def _wait_for_cards(page: Page, count: int) -> None:
    page.wait_for_function(
        "n => document.querySelectorAll('.card[data-phase=done] a[href]').length === n", arg=count, timeout=120_000
    )


def _show_middle(page: Page) -> None:
    """Move the open video to its middle frame, and wait for what is drawn of it."""
    page.wait_for_function("() => document.querySelector('.screen video')?.readyState >= 2")
    last = int(page.get_attribute("#curve", "aria-valuemax") or 0)
    for _ in range(last // 2):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("() => !document.querySelector('.screen video').seeking")
    page.evaluate("document.activeElement.blur()")
    page.wait_for_function("n => document.querySelector('[data-end=to]')?.dataset.frame === String(n)", arg=last // 2)


def _save(page: Page, file: Path) -> Path:
    page.screenshot(path=file)
    Image.open(file).convert("RGB").save(file, optimize=True)
    return file


def main() -> None:
    url, out, *videos = sys.argv[1:]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        for file in take(browser, url, Path(out), [Path(video) for video in videos]):
            print(f"{file} {file.stat().st_size // 1000} kB")
        browser.close()


if __name__ == "__main__":
    main()
