"""What Scale and Bias are combined with: operands' shapes, and how they repeat over x's axes."""

FILLER = 'filler { type: "gaussian" mean: 1 std: 0.5 }'
FIELDS = {"Scale": "scale_param", "Bias": "bias_param"}
# x's shape, axis, num_axes, the learned operand's shape, and that with the axes over which it repeats
LEARNED = [
    ((2, 3, 4), 1, 1, (3,), (1, 3, 1)),
    ((2, 3, 4), 1, 2, (3, 4), (1, 3, 4)),
    ((2, 3, 4), -1, 1, (4,), (1, 1, 4)),
    ((2, 3, 4), 0, 2, (2, 3), (2, 3, 1)),
    ((2, 3, 4), 0, -1, (2, 3, 4), (2, 3, 4)),
    ((2, 3, 4), 1, 0, (), (1, 1, 1)),
    ((5, 3), 1, 1, (3,), (1, 3)),
]
# x's shape, axis, the second bottom's shape, and that with the axes over which it repeats
GIVEN = [
    ((2, 3, 4), 0, (2,), (2, 1, 1)),
    ((2, 3, 4), 0, (2, 3), (2, 3, 1)),
    ((2, 3, 4), 0, (2, 3, 4), (2, 3, 4)),
    ((2, 3, 4), 1, (3,), (1, 3, 1)),
    ((2, 3), 0, (), (1, 1)),
]


def text(kind: str, axis: int, num_axes: int = 1, more: str = FILLER) -> str:
    """Return the layer's prototxt."""
    return f'type: "{kind}" {FIELDS[kind]} {{ axis: {axis} num_axes: {num_axes} {more} }}'
