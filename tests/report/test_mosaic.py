"""The film of all episodes: a tile for each, its bar as long as the running sum, its frame green in solved steps."""

import numpy as np

from timerewarder.evaluation.episodes import Episode
from timerewarder.report.mosaic import BAR, BORDER, COLUMNS, EMPTY, GROWN, PICTURE, SOLVED, mosaic

SIDE, HEIGHT = PICTURE + 2 * BORDER, PICTURE + 3 * BORDER + BAR


def episode(dense: list[float], success: list[bool], grey: int = 90) -> Episode:
    frames = np.full((len(dense) + 1, 8, 8, 3), grey, np.uint8)
    return Episode(np.array(dense, np.float32), np.zeros(len(dense), np.float32), np.array(success), frames)


def tile(picture: np.ndarray, row: int, column: int) -> np.ndarray:
    return picture[row * HEIGHT : (row + 1) * HEIGHT, column * SIDE : (column + 1) * SIDE]


def length_of_bar(tile: np.ndarray) -> int:
    bar = tile[PICTURE + 2 * BORDER + BAR // 2, BORDER : BORDER + PICTURE]
    grown = (bar == GROWN).all(1)
    assert ((bar == EMPTY).all(1) | grown).all()
    assert not grown[grown.sum() :].any()  # from the left
    return int(grown.sum())


def test_every_episode_has_its_tile_and_stands_still_when_it_is_over():
    short, long = episode([0.5], [True], grey=10), episode([0.25, 0.25, -1.0], [False, True, False], grey=200)
    pictures = list(mosaic([short, *[long] * COLUMNS]))
    assert [picture.shape for picture in pictures] == [(2 * HEIGHT, COLUMNS * SIDE, 3)] * 4
    for row, column, lengths, solved, grey in [
        (0, 0, [0, 0.5, 0.5, 0.5], [False, True, True, True], 10),
        (1, 0, [0, 0.25, 0.5, 0], [False, False, True, False], 200),
    ]:
        tiles = [tile(picture, row, column) for picture in pictures]
        assert [length_of_bar(one) for one in tiles] == [length * PICTURE for length in lengths]
        assert [(one[0, 0] == SOLVED).all() for one in tiles] == solved
        assert all((one[BORDER + 3, BORDER + 3] == grey).all() for one in tiles)
    assert (tile(pictures[0], 1, 1) == 255).all()  # no seventh episode


def test_the_largest_sum_fills_the_bar_when_it_is_more_than_one():
    last = list(mosaic([episode([4.0], [False]), episode([1.0], [False]), episode([-3.0], [False])]))[-1]
    assert [length_of_bar(tile(last, 0, column)) for column in range(3)] == [PICTURE, PICTURE // 4, 0]
