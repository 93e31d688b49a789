"""The page of `timerewarder serve` in a real Chromium, against the real server with three small models.

timerewarder and order give progress and distances; gaifo gives neither. One server holds videos that the tests only
look at (`shelf`), another starts empty for each test (`scratch`).
"""

from __future__ import annotations

import csv
import importlib.util
import io
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from urllib.parse import urlsplit

import av
import httpx
import numpy as np
import pytest
import uvicorn
from PIL import Image
from playwright.sync_api import Browser, Download, Locator, Page, expect, sync_playwright

import timerewarder.serve
from tests.conftest import QUICK, SIZE, crossing
from timerewarder import api
from timerewarder.data.videos import write_video
from timerewarder.rewards.reward import FrameReward
from timerewarder.serve.app import create_app
from timerewarder.serve.limits import Limits

ROOT = Path(__file__).parents[2]
PAGE = Path(timerewarder.serve.__file__).parent / "page"
FRAMES, FPS = 16, 10.0
SUCCESSES, FAILURES = ("success_a",), ("failed_a", "failed_b")
expect.set_options(timeout=20_000)  # a busy machine is no failure
TOKEN = "a secret: 50% + more"


def load_tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


screenshots = load_tool("screenshots")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    try:
        program = screenshots.find_chromium()
    except FileNotFoundError as error:
        pytest.fail(str(error))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def rewards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FrameReward]:
    folder = tmp_path_factory.mktemp("seen")
    for seed in range(24):
        np.save(folder / f"{seed}.npy", crossing(seed))
    lengths = {"timerewarder": 1000, "order": 400, "gaifo": 150}
    return {
        method: api.fit(folder, method=method, **{**QUICK, "epoch_frames": frames, "validate_every": frames})
        for method, frames in lengths.items()
    }


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A video in which the square crosses the picture, and two in which it turns back."""
    folder = tmp_path_factory.mktemp("films")
    films = {}
    for seed, name in enumerate((*SUCCESSES, *FAILURES), 100):
        frames = crossing(seed, FRAMES)
        if name in FAILURES:
            frames = np.concatenate([frames[: FRAMES // 2], frames[: FRAMES // 2][::-1]])
        films[name] = folder / f"{name}.mp4"
        write_video(films[name], frames, FPS)
    return films


@contextmanager
def serving(rewards: dict[str, FrameReward], limits: Limits | None = None, token: str | None = None) -> Iterator[str]:
    """The address of a server that runs in a thread."""
    server = uvicorn.Server(uvicorn.Config(create_app(rewards, limits or Limits(), token), port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


def upload(url: str, files: dict[str, Path]) -> dict[str, dict]:
    """Videos on a server without a page: what it says of each when it is done, by name."""
    ids = {
        name: httpx.post(f"{url}/v1/videos", params={"name": file.name}, files={"video": file.read_bytes()}).json()[
            "id"
        ]
        for name, file in files.items()
    }
    videos = {}
    for name, id in ids.items():
        while (video := httpx.get(f"{url}/v1/videos/{id}").json())["state"] not in ("done", "failed"):
            time.sleep(0.05)
        assert video["state"] == "done", video
        videos[name] = video
    return videos


@pytest.fixture(scope="module")
def shelf_server(rewards: dict[str, FrameReward]) -> Iterator[str]:
    with serving(rewards) as url:
        yield url


@pytest.fixture(scope="module")
def shelf(shelf_server: str, films: dict[str, Path]) -> dict[str, dict]:
    return upload(shelf_server, films)


@pytest.fixture(scope="module")
def scratch_server(rewards: dict[str, FrameReward]) -> Iterator[str]:
    with serving(rewards, Limits(upload_megabytes=1, videos=3)) as url:
        yield url


@pytest.fixture
def scratch(scratch_server: str) -> str:
    for video in httpx.get(f"{scratch_server}/v1/videos").json()["videos"]:
        httpx.delete(f"{scratch_server}/v1/videos/{video['id']}")
    return scratch_server


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Open an address; at the end, no page may have complained or asked another machine for anything."""
    contexts, complaints, expected, asked, allowed = [], [], [], [], set()

    def open_page(url: str, refused: tuple[int, ...] = (), **options) -> Page:
        context = browser.new_context(
            **{"viewport": {"width": 1200, "height": 900}, "reduced_motion": "reduce"} | options
        )
        contexts.append(context)
        allowed.add(urlsplit(url).netloc)
        page = context.new_page()
        page.set_default_timeout(20_000)
        context.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None
        )
        page.goto(url)
        expected.extend(f"status of {status}" for status in refused)  # the browser itself reports these
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [text for text in complaints if not any(part in text for part in expected)] == []
    assert {urlsplit(url).netloc for url in asked if not url.startswith(("blob:", "data:"))} <= allowed


@pytest.fixture
def opened(visit, shelf_server: str, shelf: dict[str, dict]) -> Page:
    """The page of a success, with its picture there."""
    page = visit(f"{shelf_server}/#/video/{shelf['success_a']['id']}")
    wait_for_video(page)
    return page


def wait_for_video(page: Page) -> None:
    page.wait_for_function("() => document.querySelector('.screen video')?.readyState >= 2")


def wait_for_frame(page: Page, frame: int) -> None:
    """Until the clock says so, and the video has arrived there: in the middle of the frame's time."""
    expect(page.locator("#curve")).to_have_attribute("aria-valuenow", str(frame))
    page.wait_for_function("() => !document.querySelector('.screen video').seeking")
    assert page.eval_on_selector(".screen video", "v => v.currentTime") == pytest.approx((frame + 0.5) / FPS, abs=1e-3)
    cursor = page.locator(".cursor").get_attribute("transform")
    assert float(re.findall(r"[\d.]+", cursor)[0]) == pytest.approx(place(page, frame)[0], abs=0.02)


def place(page: Page, frame: int) -> tuple[float, float]:
    """Where a frame is on the curve's x axis, in pixels of the chart, and the chart's width."""
    width = page.eval_on_selector("#curve", "node => node.clientWidth")
    return 44 + frame / (FRAMES - 1) * (width - 12 - 44), width


def point_at(page: Page, frame: float) -> tuple[float, float]:
    """The same on the screen, half-way down the progress."""
    box = page.locator("#curve").bounding_box()
    assert box is not None
    return box["x"] + place(page, frame)[0], box["y"] + 120


def pixels(page: Page, selector: str) -> np.ndarray:
    """What a canvas shows, uint8 (H, W, 4)."""
    height, width, values = page.eval_on_selector(
        selector,
        """canvas => {
            const { width, height } = canvas;
            const copy = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
            copy.drawImage(canvas, 0, 0);
            return [height, width, [...copy.getImageData(0, 0, width, height).data]];
        }""",
    )
    return np.array(values).reshape(height, width, 4)


def square(page: Page, selector: str) -> float:
    """The centre of the bright square in a canvas, as a share of its width."""
    shown = pixels(page, selector)
    columns = np.nonzero((shown[..., 0] > 150).any(axis=0))[0]
    return (columns.min() + columns.max() + 1) / 2 / shown.shape[1]


def square_at(frame: int) -> float:
    """Where the square's centre is in that frame of a success."""
    side = SIZE // 5
    return (round(frame * (SIZE - side) / (FRAMES - 1)) + side / 2) / SIZE


def drop(page: Page, *files: Path) -> None:
    """What the browser does when files or folders are dropped on it."""
    session = page.context.new_cdp_session(page)
    data = {"items": [], "files": [str(file) for file in files], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": kind, "x": 300, "y": 300, "data": data})
        if kind == "dragOver":
            page.wait_for_function("() => !document.getElementById('drop').hidden")


def leave(*pages: Page) -> None:
    """Close them while their server still runs: they may be asking it for something."""
    for page in pages:
        page.context.close()


def names(page: Page) -> list[str]:
    return page.locator(".card-name").all_inner_texts()


def wait_for_videos(url: str, count: int) -> None:
    for _ in range(200):
        left = httpx.get(f"{url}/v1/videos").json()["videos"]
        if len(left) == count:
            return
        time.sleep(0.05)
    pytest.fail(f"{count} videos expected on the server, there are {len(left)}")


def number(text: str) -> float:
    return float(text.replace("\u2212", "-"))


def saved(page: Page, file: str) -> Download:
    with page.expect_download() as download:
        page.locator(f"[data-file='{file}']").click()
    return download.value


def content(download: Download) -> bytes:
    return Path(download.path()).read_bytes()


def test_the_files_need_nothing_from_elsewhere_and_no_inline_code():
    index = (PAGE / "index.html").read_text("utf-8")
    assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=|javascript:", index)
    for file in PAGE.iterdir():
        text = file.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text, file.name
        assert 'setAttribute("style"' not in text, file.name
    assert {name for name in re.findall(r'"/assets/([^"]+)"', index)} <= {file.name for file in PAGE.iterdir()}


def test_an_empty_page_says_what_to_do_and_who_scores(visit, scratch: str):
    page = visit(scratch)
    expect(page.get_by_role("heading", name="Drop videos here")).to_be_visible()
    expect(page.get_by_role("button", name="Choose a folder")).to_be_visible()
    expect(page.locator("#formats")).to_contain_text(
        "mp4, mov, m4v, webm, mkv, avi, gif, npy, npz · up to 1 MB and 5,000 frames"
    )
    assert page.locator("#models li").all_inner_texts() == ["timerewarder", "order", "gaifo"]
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_hidden()


def test_a_dropped_video_shows_its_way_and_opens_with_its_curve(visit, scratch: str, films: dict[str, Path]):
    page = visit(scratch)
    page.evaluate(
        """() => { window.seen = []; new MutationObserver(() => document.querySelectorAll('.card').forEach(card =>
            window.seen.push(card.dataset.phase + ': ' + card.querySelector('.state').textContent)
        )).observe(document.querySelector('#cards'), { subtree: true, childList: true, attributes: true }); }"""
    )
    drop(page, films["success_a"])
    wait_for_video(page)
    seen = page.evaluate("window.seen")
    assert any(re.fullmatch(r"uploading: Uploading \d+ %", line) for line in seen), seen
    assert any(line.startswith(("waiting: Waits", "decoding: Decoding", "scoring: Scoring")) for line in seen), seen
    expect(page.locator("#viewer h1")).to_have_text("success_a.mp4")
    expect(page.locator("#viewer .name .note")).to_have_text(f"{FRAMES} frames · 10 fps · 1.60 s · 32×32")

    video = httpx.get(f"{scratch}/v1/videos/{page.url.split('/')[-1]}").json()
    for model in ("timerewarder", "order"):
        line = page.locator(f".line.strong[data-model={model}]").get_attribute("d")
        heights = np.array([[float(n) for n in point.split()] for point in re.split("[ML]", line)[1:]])
        progress = np.array(video["results"][model]["progress"])
        assert len(heights) == FRAMES
        assert np.corrcoef(heights[:, 1], progress)[0, 1] < -0.999  # up on the screen is a smaller number
        final = page.locator(f"tr[data-model={model}] .final").inner_text()
        assert number(final) == pytest.approx(progress[-1], abs=5.1e-4)
    assert page.title() == "success_a.mp4 · timerewarder"


def test_clicking_and_dragging_on_the_curve_seeks_the_video(opened: Page):
    opened.mouse.click(*point_at(opened, 5))
    wait_for_frame(opened, 5)
    opened.mouse.move(*point_at(opened, 5))
    opened.mouse.down()
    for frame in (6, 9, 12):
        opened.mouse.move(*point_at(opened, frame))
        expect(opened.locator("#curve")).to_have_attribute("aria-valuenow", str(frame))
    opened.mouse.move(point_at(opened, 12)[0] + 4000, 10)  # held: goes on outside, as far as there are frames
    opened.mouse.up()
    wait_for_frame(opened, FRAMES - 1)
    opened.mouse.move(*point_at(opened, 3))  # let go: pointing alone does not seek
    wait_for_frame(opened, FRAMES - 1)


def test_seeking_and_playing_the_video_move_the_cursor(opened: Page, shelf: dict[str, dict]):
    result = shelf["success_a"]["results"]["timerewarder"]
    for frame in (11, 2):
        opened.eval_on_selector(".screen video", "(v, t) => { v.currentTime = t; }", (frame + 0.5) / FPS)
        wait_for_frame(opened, frame)
        row = opened.locator("tr[data-model=timerewarder]")
        assert number(row.locator("[data-kind=reward]").inner_text()) == pytest.approx(
            result["rewards"][frame], abs=5.1e-4
        )
        assert number(row.locator("[data-kind=sum]").inner_text()) == pytest.approx(
            result["progress"][frame], abs=5.1e-4
        )
        expect(opened.locator("#now")).to_contain_text(f"{frame} / {FRAMES - 1}")
    opened.evaluate(
        """() => { window.cursors = []; new MutationObserver(() => window.cursors.push(
            document.querySelector('#curve').getAttribute('aria-valuenow')
        )).observe(document.querySelector('.cursor'), { attributes: true }); }"""
    )
    opened.keyboard.press(" ")
    expect(opened.get_by_role("button", name="Pause")).to_be_visible()
    opened.wait_for_function("() => document.querySelector('.screen video').ended")
    expect(opened.locator("#curve")).to_have_attribute("aria-valuenow", str(FRAMES - 1))
    passed = [int(frame) for frame in opened.evaluate("window.cursors")]
    assert passed == sorted(passed)
    assert len(set(passed)) > 3
    opened.keyboard.press(" ")  # from the end it starts again
    expect(opened.get_by_role("button", name="Pause")).to_be_visible()
    opened.keyboard.press(" ")
    assert opened.eval_on_selector(".screen video", "v => v.paused")


def test_pointing_at_the_curve_shows_that_frame(opened: Page, shelf: dict[str, dict]):
    result = shelf["success_a"]["results"]["order"]
    for frame in (3, 13):
        opened.mouse.move(*point_at(opened, frame + 0.3))
        expect(opened.locator("#tip canvas")).to_have_attribute("data-frame", str(frame))
        assert square(opened, "#tip canvas") == pytest.approx(square_at(frame), abs=0.05)
        expect(opened.locator("#tip .title")).to_have_text(f"frame {frame} · {frame / FPS:.2f} s")
        progress, reward = opened.locator("#tip .series-1 b").all_inner_texts()
        assert number(progress) == pytest.approx(result["progress"][frame], abs=5.1e-4)
        assert number(reward) == pytest.approx(result["rewards"][frame], abs=5.1e-4)
    assert opened.eval_on_selector(".screen video", "v => v.currentTime") == 0  # the video itself has not moved
    opened.mouse.move(2, 2)
    expect(opened.locator("#tip")).to_be_hidden()


def test_keys_step_through_the_frames_and_the_videos(opened: Page):
    for key, frame in [
        ("ArrowRight", 1), ("Shift+ArrowRight", 11), ("ArrowLeft", 10), ("End", 15), ("ArrowRight", 15), ("Home", 0),
        ("Shift+ArrowLeft", 0),
    ]:  # fmt: skip
        opened.keyboard.press(key)
        expect(opened.locator("#curve")).to_have_attribute("aria-valuenow", str(frame))
    wait_for_frame(opened, 0)
    expect(opened.locator(".neighbours")).to_contain_text("of 3")
    opened.keyboard.press("[")  # there are failures before it
    expect(opened.locator("#viewer h1")).not_to_have_text("success_a.mp4")
    opened.keyboard.press("]")
    expect(opened.locator("#viewer h1")).to_have_text("success_a.mp4")
    opened.keyboard.press("Escape")
    expect(opened.locator("#grid")).to_be_visible()
    expect(opened.locator("#cards a:focus .card-name")).to_have_text("success_a.mp4")


def test_the_distance_map_has_the_right_colours_and_jumps(opened: Page, shelf_server: str, shelf: dict[str, dict]):
    field = opened.locator(".field")
    expect(field).to_have_attribute("data-model", "timerewarder")
    assert opened.locator(".distances select option").all_inner_texts() == ["timerewarder", "order"]  # gaifo has none
    shown = pixels(opened, ".map")
    assert shown.shape == (FRAMES, FRAMES, 4)
    later, earlier = shown[0, -1], shown[-1, 0]
    assert later[2] > later[0] + 50  # row 0, last column: from the first frame to the last, blue
    assert earlier[0] > earlier[2] + 50

    box = field.bounding_box()
    assert box is not None
    cell = box["width"] / FRAMES
    opened.mouse.click(box["x"] + 12.5 * cell, box["y"] + 4.5 * cell)
    wait_for_frame(opened, 12)
    assert opened.locator(".column").evaluate("i => parseFloat(i.style.left)") == pytest.approx(100 * 12.5 / FRAMES)
    assert opened.locator(".field .row").evaluate("i => parseFloat(i.style.top)") == pytest.approx(100 * 4.5 / FRAMES)
    address = f"{shelf_server}/v1/videos/{shelf['success_a']['id']}/distances"
    for model in ("timerewarder", "order"):
        opened.get_by_label("Model of the distance map").select_option(model)
        expect(field).to_have_attribute("data-model", model)
        predicted = httpx.get(address, params={"model": model}).json()["values"][4][12]
        assert number(opened.locator(".value").inner_text()) == pytest.approx(predicted, abs=5.1e-4)
    expect(opened.locator(".reading")).to_contain_text("really 8 frames later")
    for end, frame in (("from", 4), ("to", 12)):
        expect(opened.locator(f"[data-end={end}]")).to_have_attribute("data-frame", str(frame))
        assert square(opened, f"[data-end={end}]") == pytest.approx(square_at(frame), abs=0.05)


def test_models_lie_over_each_other_and_can_be_hidden(opened: Page):
    lines = opened.locator(".line.strong")
    assert [line.get_attribute("data-model") for line in lines.all()[:2]] == ["timerewarder", "order"]
    titles = opened.locator(".chart .title").all_text_contents
    own = "Step reward of gaifo: own scale, its sum is no progress"
    assert titles()[:3] == ["Progress", "Step reward, as a share of the task", own]
    expect(opened.locator("tr[data-model=gaifo]")).to_contain_text("sum of rewards, no progress")
    for model in ("order", "gaifo"):
        opened.get_by_role("checkbox", name=model).uncheck()
    expect(opened.locator("#curve [data-model]")).to_have_count(1)
    assert titles()[:3] == ["Progress", "Step reward, as a share of the task"]
    expect(opened.locator("#curve path.up")).to_have_count(1)  # one model alone: its steps are bars
    opened.get_by_role("checkbox", name="timerewarder").uncheck()
    expect(opened.locator("#curve")).to_contain_text("No model is shown")
    for model in ("timerewarder", "gaifo"):
        opened.get_by_role("checkbox", name=model).check()
    assert {line.get_attribute("data-model") for line in opened.locator("#curve [data-model]").all()} == {
        "timerewarder",
        "gaifo",
    }


def test_the_grid_shows_failures_first(visit, shelf_server: str, shelf: dict[str, dict]):
    page = visit(shelf_server)
    expect(page.locator(".card canvas[data-drawn]")).to_have_count(3)
    finals = {f"{name}.mp4": video["results"]["timerewarder"]["final_progress"] for name, video in shelf.items()}
    low = sorted(finals, key=finals.__getitem__)
    assert {name[:6] for name in low[:2]} == {"failed"}
    assert names(page) == low
    shown = [number(text) for text in page.locator(".card .final").all_inner_texts()]
    assert shown == pytest.approx([finals[name] for name in low], abs=5.1e-3)
    expect(page.locator(".card .spark").first.locator(".line")).to_have_count(2)  # a curve for each model with progress
    page.select_option("#order", "high")
    assert names(page) == low[::-1]
    page.select_option("#order", "name")
    assert names(page) == sorted(finals)
    page.select_option("#order", "low")
    page.select_option("#by", "gaifo")
    sums = {f"{name}.mp4": video["results"]["gaifo"]["final_progress"] for name, video in shelf.items()}
    assert names(page) == sorted(sums, key=sums.__getitem__)
    expect(page.locator("#grid-note")).to_contain_text("the sum is no progress")


def test_cards_are_reached_by_keys_and_by_mouse(visit, shelf_server: str, shelf: dict[str, dict]):
    page = visit(shelf_server)
    expect(page.locator(".card a[href]")).to_have_count(3)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    second = names(page)[1]
    expect(page.locator("#cards a:focus .card-name")).to_have_text(second)
    page.keyboard.press("Enter")
    expect(page.locator("#viewer h1")).to_have_text(second)
    expect(page.locator(".neighbours")).to_contain_text("2 of 3")
    page.get_by_role("link", name="Video after").click()
    third = names(page)[2]
    expect(page.locator("#viewer h1")).to_have_text(third)
    page.go_back()
    expect(page.locator("#viewer h1")).to_have_text(second)
    page.reload()
    expect(page.locator("#viewer h1")).to_have_text(second)
    page.get_by_role("link", name="All videos", exact=False).last.click()
    expect(page.locator("#grid")).to_be_visible()


def test_exports_are_real_files(opened: Page, shelf: dict[str, dict]):
    opened.get_by_label("Model to export").select_option("order")
    table = saved(opened, "scores.csv")
    assert table.suggested_filename == "success_a_order.csv"
    rows = list(csv.DictReader(io.StringIO(content(table).decode())))
    progress = [float(row["progress"]) for row in rows]
    assert progress == pytest.approx(shelf["success_a"]["results"]["order"]["progress"], abs=1e-5)
    plot = Image.open(io.BytesIO(content(saved(opened, "plot.png"))))
    assert plot.format == "PNG"
    assert plot.width > 1000
    with av.open(io.BytesIO(content(saved(opened, "overlay.mp4")))) as video:
        assert sum(1 for _ in video.decode(video=0)) == FRAMES


def test_bad_files_are_refused_in_words_and_the_rest_goes_on(
    visit, scratch: str, films: dict[str, Path], tmp_path: Path
):
    (tmp_path / "words.mp4").write_text("this is no video")
    (tmp_path / "notes.txt").write_text("nor is this")
    np.save(tmp_path / "huge.npy", np.zeros((20, 200, 200, 3), np.uint8))
    page = visit(scratch, refused=(400, 422))
    drop(page, *(tmp_path / name for name in ("words.mp4", "notes.txt", "huge.npy")), films["success_a"])
    expect(page.locator("#notice")).to_contain_text("1 file left out, no video by name: notes.txt")
    expect(page.locator(".card[data-phase=done]")).to_have_count(1)
    expect(page.locator(".card[data-phase=failed]")).to_have_count(2)
    assert names(page) == ["success_a.mp4", "huge.npy", "words.mp4"]
    expect(page.locator(".card", has_text="huge.npy")).to_contain_text("2 MB is more than this server takes (1 MB)")
    message = page.locator(".card", has_text="words.mp4").locator(".problem").inner_text()
    assert "words.mp4" in message or "video" in message
    assert "Traceback" not in message
    expect(page.locator("#grid-note")).to_contain_text("2 could not be scored")
    page.get_by_role("button", name="Dismiss").click()
    expect(page.locator("#notice")).to_be_hidden()


def test_a_folder_is_searched_the_oldest_go_and_videos_can_be_deleted(
    visit, scratch: str, films: dict[str, Path], tmp_path: Path
):
    folder = tmp_path / "robot"
    for name in ("success_a", "failed_a"):
        part = folder / name.split("_")[0]
        part.mkdir(parents=True, exist_ok=True)
        (part / f"{name[-1]}.mp4").write_bytes(films[name].read_bytes())
    (folder / ".hidden").write_text("passed over")
    page = visit(scratch, refused=(404,))  # the picture of a video that had to go
    drop(page, folder)
    expect(page.locator(".card[data-phase=done]")).to_have_count(2)
    expect(page.locator("#notice")).to_be_hidden()
    assert names(page) == ["failed › a.mp4", "success › a.mp4"]
    page.set_input_files("#folder", folder)  # the server keeps 3
    expect(page.locator("#notice")).to_contain_text("keeps 3 videos and lets the oldest go")
    expect(page.locator(".card[data-phase=done]")).to_have_count(3)
    page.get_by_role("button", name="Delete success › a.mp4").first.click()
    expect(page.locator(".card")).to_have_count(2)
    wait_for_videos(scratch, 2)
    page.locator(".card a[href]").first.click()
    page.locator("#viewer").get_by_role("button", name=re.compile("Delete")).click()
    expect(page.locator(".neighbours")).to_contain_text("1 of 1")
    page.keyboard.press("Escape")
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Clear").click()
    expect(page.get_by_role("heading", name="Drop videos here")).to_be_visible()
    wait_for_videos(scratch, 0)


def test_resampling_scores_fewer_frames(visit, scratch: str, films: dict[str, Path]):
    page = visit(scratch)
    page.locator(".fps").first.fill("5")
    page.set_input_files("#files", films["success_a"])
    expect(page.locator("#viewer .name .note")).to_contain_text(f"{FRAMES // 2} frames · 5 fps")


def test_a_token_is_asked_for_once_and_goes_with_everything(
    visit, rewards: dict[str, FrameReward], films: dict[str, Path]
):
    with serving({"timerewarder": rewards["timerewarder"]}, token=TOKEN) as url:
        page = visit(url, refused=(401,))
        asked = page.get_by_role("dialog", name="This server needs its token")
        expect(asked).to_be_visible()
        page.get_by_role("textbox", name="Token").fill("wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_text("That is not the token")).to_be_visible()
        page.get_by_role("textbox", name="Token").fill(TOKEN)
        page.keyboard.press("Enter")
        expect(asked).to_be_hidden()
        page.set_input_files("#files", films["success_a"])
        wait_for_video(page)
        assert content(saved(page, "scores.csv")).startswith(b"frame,time,reward,progress")
        expect(page.locator(".tools select")).to_be_hidden()  # one model: nothing to choose
        page.keyboard.press("Escape")
        expect(page.locator(".card canvas[data-drawn]")).to_have_count(1)
        page.reload()
        expect(page.locator(".card")).to_have_count(1)  # kept for this tab

        other = visit(f"{url}/#token={TOKEN.replace('%', '%25').replace(' ', '%20')}")
        expect(other.locator(".card")).to_have_count(1)
        assert other.url == f"{url}/"
        leave(page, other)


def test_a_model_without_distances_has_no_map(visit, rewards: dict[str, FrameReward], films: dict[str, Path]):
    with serving({"gaifo": rewards["gaifo"]}) as url:
        upload(url, {"success_a": films["success_a"]})
        page = visit(url)
        expect(page.locator(".card .spark .line")).to_have_count(1)
        page.locator(".card a[href]").click()
        expect(page.locator("#viewer")).to_contain_text("No distance map: gaifo")
        expect(page.locator(".chart .title").first).to_have_text(
            "Step reward of gaifo: own scale, its sum is no progress"
        )
        wait_for_video(page)
        page.mouse.move(*point_at(page, 6))
        expect(page.locator("#tip canvas")).to_have_attribute("data-frame", "6")
        leave(page)


def background(page: Page) -> str:
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_dark_follows_the_system_and_the_button(visit, shelf_server: str, shelf: dict[str, dict]):
    page = visit(f"{shelf_server}/#/video/{shelf['success_a']['id']}", color_scheme="dark")
    expect(page.locator(".field")).to_have_attribute("data-model", "timerewarder")
    dark, zero = background(page), pixels(page, ".map")[0, 0].sum()
    page.get_by_role("button", name="Switch between light and dark").click()
    light = background(page)
    assert sum(map(int, re.findall(r"\d+", light))) > 600 > 200 > sum(map(int, re.findall(r"\d+", dark)))
    assert pixels(page, ".map")[0, 0].sum() > zero + 300  # the map is painted again
    page.reload()
    assert background(page) == light


def overflow(page: Page) -> int:
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def test_a_phone_needs_no_sideways_scrolling(visit, shelf_server: str, shelf: dict[str, dict], scratch: str):
    phone = {"viewport": {"width": 375, "height": 720}, "has_touch": True, "is_mobile": True}
    empty = visit(scratch, **phone)
    expect(empty.locator("#empty")).to_be_visible()
    assert overflow(empty) == 0
    page = visit(shelf_server, **phone)
    expect(page.locator(".card a[href]")).to_have_count(3)
    assert overflow(page) == 0
    page.locator(".card a[href]").first.tap()
    wait_for_video(page)
    expect(page.locator(".field")).to_have_attribute("data-model", "timerewarder")
    assert overflow(page) == 0
    inside(page, page.locator(".tools"), page.locator(".legend"), page.locator(".field"), page.locator(".bar .actions"))
    page.locator("#curve").scroll_into_view_if_needed()
    page.touchscreen.tap(*point_at(page, 7))
    wait_for_frame(page, 7)


def inside(page: Page, *parts: Locator) -> None:
    width = page.viewport_size["width"]
    for part in parts:
        box = part.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width


def test_the_screenshots_of_the_documentation(browser: Browser, scratch: str, films: dict[str, Path], tmp_path: Path):
    taken = screenshots.take(browser, scratch, tmp_path, [films["success_a"], films["failed_a"]])
    assert [file.name for file in taken] == ["page-light.png", "page-dark.png", "page-phone.png"]
    light, dark, phone = (np.asarray(Image.open(file)) for file in taken)
    assert light.shape[1] == dark.shape[1] == 1280
    assert phone.shape[1] == 2 * 375
    assert np.median(light) > 200 > 60 > np.median(dark)
    for file in taken:
        shown = Image.open(ROOT / "docs" / file.name)
        assert shown.size == Image.open(file).size, f"docs/{file.name} is out of date: run tools/screenshots.py"
        assert (ROOT / "docs" / file.name).stat().st_size < 300_000
