"""The ten digits, each drawn in a few strokes, as a person might: points [x, y] in 0..1."""

from __future__ import annotations

from math import cos, pi, sin


def _arc(x, y, rx, ry, begin, end, points=16):
    """Part of an ellipse; angles in turns, from the right, clockwise on the screen."""
    angles = [2 * pi * (begin + (end - begin) * i / points) for i in range(points + 1)]
    return [[x + rx * cos(a), y + ry * sin(a)] for a in angles]


STROKES = {
    0: [_arc(0.5, 0.5, 0.22, 0.34, -0.25, 0.75, 30)],
    1: [[[0.38, 0.3], [0.54, 0.15], [0.54, 0.86]]],
    2: [[*_arc(0.5, 0.33, 0.2, 0.18, -0.5, 0.1), [0.3, 0.85], [0.72, 0.85]]],
    3: [[*_arc(0.47, 0.32, 0.2, 0.17, -0.4, 0.25), *_arc(0.47, 0.67, 0.22, 0.18, -0.25, 0.4)]],
    4: [[[0.52, 0.14], [0.28, 0.6], [0.75, 0.6]], [[0.62, 0.42], [0.58, 0.88]]],
    5: [[[0.7, 0.15], [0.38, 0.15], [0.35, 0.45], *_arc(0.48, 0.64, 0.22, 0.21, -0.3, 0.4)]],
    6: [[[0.6, 0.13], [0.4, 0.35], [0.33, 0.6], *_arc(0.5, 0.68, 0.17, 0.18, 0.5, 1.5, 24)]],
    7: [[[0.3, 0.17], [0.7, 0.17], [0.58, 0.5], [0.45, 0.87]], [[0.4, 0.52], [0.7, 0.5]]],
    8: [_arc(0.5, 0.32, 0.15, 0.16, 0.25, -0.75, 24) + _arc(0.5, 0.66, 0.18, 0.19, -0.25, 0.75)],
    9: [[*_arc(0.5, 0.33, 0.18, 0.17, 0, -1, 24), [0.66, 0.55], [0.6, 0.87]]],
}  # fmt: skip
