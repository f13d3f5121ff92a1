"""Random numbers and orders that are functions of their keys alone: no stream, no state, no memory.

What is drawn for a sample so depends neither on the number of ranks nor on what was read before it.
"""

from __future__ import annotations

import numpy as np

Numbers = np.ndarray | np.integer | int

# Of the Feistel network. Four make a pseudo-random permutation (Luby, Rackoff 1988) where the halves are large; with
# eight, and three bits in each half, all orders of a few things are as likely.
ROUNDS = 8
LEAST_HALF = 3  # bits


def key(seed: int, *numbers: Numbers) -> np.ndarray:
    """Return words (uint64), each a function of the seed and of its own numbers (n) alone.

    The mixing function is SplitMix64's (Steele, Lea, Flood 2014), chained over the numbers.
    """
    state = np.full(1, seed % 2**64, np.uint64)
    for number in numbers:
        state = _mix(state + np.asarray(number).astype(np.uint64))
    return state


def bounded(words: np.ndarray, bounds: Numbers) -> np.ndarray:
    """Return uniform integers in [0, bounds) (n, uint64) for words (n), bounds below 2**32."""
    return ((words >> np.uint64(32)) * np.asarray(bounds).astype(np.uint64)) >> np.uint64(32)


def permute(keys: np.ndarray, places: np.ndarray, counts: Numbers) -> np.ndarray:
    """Return where each place (n) in [0, counts) is sent by the random permutation that its key names (n, int64).

    A Feistel network permutes the numbers of the next even number of bits; who lands at `counts` or beyond walks
    on to where that place is sent (Black, Rogaway 2002): on average less than four times, for more than 16 places.
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


def _half_bits(counts: np.ndarray) -> np.ndarray:
    """Return half the bits, rounded up, that the numbers below each count need, or LEAST_HALF (n, uint64)."""
    _, bits = np.frexp((counts - np.uint64(1)).astype(np.float64))
    return np.maximum((bits + 1) // 2, LEAST_HALF).astype(np.uint64)


def _feistel(keys: np.ndarray, places: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Return the places (n, uint64) of 2 * half bits permuted."""
    mask = (np.uint64(1) << half) - np.uint64(1)
    left, right = places >> half, places & mask
    for number in range(ROUNDS):
        left, right = right, left ^ (_mix(keys + (right << np.uint64(8)) + np.uint64(number)) & mask)
    return (left << half) | right


def _mix(words: np.ndarray) -> np.ndarray:
    """Return words (uint64) in which each bit depends on every bit of the given ones."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
