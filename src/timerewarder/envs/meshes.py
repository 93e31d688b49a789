"""Fewer faces for the meshes of a MuJoCo model that is only drawn from.

Decimated meshes are written over the start of the model's own arrays and the rest is left unused: no size changes, and
the frame in which MuJoCo placed each mesh stays what it was.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from timerewarder.envs.simulator import fast_simplification

ARRAYS = (
    *("mesh_vert", "mesh_face", "mesh_normal", "mesh_facenormal"),
    *("mesh_vertnum", "mesh_facenum", "mesh_normalnum", "mesh_graphadr"),
)
_done: dict[tuple[bytes, int, float], dict[str, NDArray[Any]]] = {}  # several environments of a process share the work


def decimate(model: Any, faces: int, weld: float) -> None:
    """Reduce the model's meshes, in place, to about `faces` faces together; join vertices closer than `weld` metres."""
    content = hashlib.blake2b(model.mesh_vert.tobytes() + model.mesh_face.tobytes()).digest()
    if (content, faces, weld) not in _done:
        limit = _limit(model.mesh_facenum, faces)
        # Twice the limit: a small mesh is often the thin handle that the task is about, and little would be saved.
        large = model.mesh_facenum > 2 * limit
        for mesh in np.flatnonzero(large & (model.mesh_texcoordadr < 0)):  # a texture would lose its place
            _decimate_one(model, int(mesh), limit, weld)
        _done[content, faces, weld] = {name: getattr(model, name).copy() for name in ARRAYS}
    for name, values in _done[content, faces, weld].items():
        getattr(model, name)[:] = values


def _limit(counts: NDArray[np.int32], budget: int) -> int:
    """The largest number of faces a mesh may keep so that all meshes together stay within the budget."""
    low, high = 4, int(counts.max())
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if np.minimum(counts, middle).sum() <= budget else (low, middle - 1)
    return low


def _decimate_one(model: Any, mesh: int, target: int, weld: float) -> None:
    """Overwrite a mesh of the copy with about `target` faces; leave it as it is if the result would not fit."""
    at, faces_at, normals_at = model.mesh_vertadr[mesh], model.mesh_faceadr[mesh], model.mesh_normaladr[mesh]
    vertices = model.mesh_vert[at : at + model.mesh_vertnum[mesh]]
    normals = model.mesh_normal[normals_at : normals_at + model.mesh_normalnum[mesh]]
    faces = model.mesh_face[faces_at : faces_at + model.mesh_facenum[mesh]]
    corner_normals = model.mesh_facenormal[faces_at : faces_at + model.mesh_facenum[mesh]]

    new_vertices, new_faces = _weld(vertices, faces, weld)
    if len(new_faces) > target:
        # agg 4: gentler than the default of 7, for fewer torn surfaces.
        new_vertices, new_faces = fast_simplification.simplify(new_vertices, new_faces, target_count=target, agg=4)
    known = np.unique(np.stack([faces.ravel(), corner_normals.ravel()], axis=1), axis=0)
    new_normals, new_corners = _transfer_normals(vertices[known[:, 0]], normals[known[:, 1]], new_vertices, new_faces)

    sizes = len(new_vertices), len(new_faces), len(new_normals)
    if any(new > old for new, old in zip(sizes, (len(vertices), len(faces), len(normals)), strict=True)):
        return
    vertices[: sizes[0]], faces[: sizes[1]], normals[: sizes[2]] = new_vertices, new_faces, new_normals
    corner_normals[: sizes[1]] = new_corners
    model.mesh_vertnum[mesh], model.mesh_facenum[mesh], model.mesh_normalnum[mesh] = sizes
    model.mesh_graphadr[mesh] = -1  # the convex hull indexes the old vertices; it is not drawn


def _weld(
    vertices: NDArray[np.float32], faces: NDArray[np.int32], tolerance: float
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Join vertices that share a cell of a grid, and drop faces that vanish.

    The robot's meshes are hundreds of separate patches; simplified unjoined, they tear apart.
    """
    cells = np.round(vertices / tolerance).astype(np.int64)
    joined = np.unique(cells, axis=0, return_inverse=True)[1].reshape(-1)
    sums = np.stack([np.bincount(joined, vertices[:, axis]) for axis in range(3)], axis=1)
    points = sums / np.bincount(joined)[:, None]
    a, b, c = joined[faces].T
    solid = np.stack([a, b, c], axis=1)[(a != b) & (b != c) & (a != c)]
    first = np.unique(np.sort(solid, axis=1), axis=0, return_index=True)[1]
    return points.astype(np.float32), solid[np.sort(first)].astype(np.int32)


def _transfer_normals(
    points: NDArray[np.float32], normals: NDArray[np.float32], vertices: NDArray[np.float32], faces: NDArray[np.int32]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Normals (N, 3) of a decimated mesh and their indices at its faces' corners (F, 3).

    Each corner takes, of the original normals at points nearby, the one that agrees best with its face: edges stay
    sharp and curved parts smooth.
    """
    near = cKDTree(points).query(vertices, k=min(4, len(points)))[1].reshape(len(vertices), -1)
    candidates = near[faces]  # (F, 3, k)
    a, b, c = (vertices[faces[:, corner]] for corner in range(3))
    agreement = np.einsum("fckd,fd->fck", normals[candidates], np.cross(b - a, c - a))
    chosen = np.take_along_axis(candidates, agreement.argmax(-1)[..., None], axis=-1)[..., 0]
    used, index = np.unique(chosen, return_inverse=True)
    return normals[used], index.reshape(chosen.shape)
