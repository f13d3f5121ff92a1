"""Counter-based random numbers and permutations: functions of their keys alone, without state.

The numbers of a sample depend neither on the number of ranks nor on earlier samples.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = np.ndarray | np.integer | int
Words = NDArray[np.uint64]

# Rounds of the Feistel network. Four make a pseudo-random permutation (Luby, Rackoff 1988) of large halves. With eight,
# and halves of three bits, all permutations of few elements are equally likely.
ROUNDS = 8
LEAST_HALF = 3  # bits


def key(seed: int, *numbers: Numbers) -> Words:
    """Return words (n, uint64), each a function of the seed and of its element of each of `numbers` (n) alone.

    The mixing function is SplitMix64's (Steele, Lea, Flood 2014), chained over the numbers.
    """
    state = np.full(1, seed % 2**64, np.uint64)
    for number in numbers:
        state = _mix(state + np.asarray(number).astype(np.uint64))
    return state


def bounded(words: Words, bounds: Numbers) -> Words:
    """Return uniform integers in [0, bounds) (n, uint64) for words (n), bounds below 2**32."""
    return ((words >> np.uint64(32)) * np.asarray(bounds).astype(np.uint64)) >> np.uint64(32)


def permute(keys: Words, places: np.ndarray, counts: Numbers) -> NDArray[np.int64]:
    """Return the image (n, int64) of each place (n) in [0, counts) under the random permutation of its key.

    A Feistel network permutes the numbers of the next even number of bits. A result of `counts` or above is permuted
    again until it is below (cycle walking; Black, Rogaway 2002): on average less than four times for more than 16
    places.
    """
    places, counts = np.asarray(places).astype(np.uint64), np.asarray(counts).astype(np.uint64)
    keys, places, counts = np.broadcast_arrays(keys, places, counts)
    half = _half_bits(counts)
    found = _feistel(keys, places, half)
    beyond = np.flatnonzero(found >= counts)
    while beyond.size:
        found[beyond] = _feistel(keys[beyond], found[beyond], half[beyond])
        beyond = beyond[found[beyond] >= counts[beyond]]
    return found.astype(np.int64)


def _half_bits(counts: Words) -> Words:
    """Return half the bits of the numbers below each count, rounded up, LEAST_HALF at least (n, uint64)."""
    _, bits = np.frexp((counts - np.uint64(1)).astype(np.float64))
    half: np.ndarray = np.maximum((bits + 1) // 2, LEAST_HALF)
    return half.astype(np.uint64)


def _feistel(keys: Words, places: Words, half: Words) -> Words:
    """Return the places (n, uint64) of 2 * half bits permuted."""
    mask = (np.uint64(1) << half) - np.uint64(1)
    left, right = places >> half, places & mask
    for number in range(ROUNDS):
        left, right = right, left ^ (_mix(keys + (right << np.uint64(8)) + np.uint64(number)) & mask)
    return (left << half) | right


def _mix(words: Words) -> Words:
    """Return words (uint64) in which each bit depends on every bit of the input."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
