"""The kernels of codecs on devices: CUDA C++ behind that of kernels.py, with the bits of the host's codecs.

`encode_CODEC` writes float32 values as a message's bytes, `decode_CODEC` reads them, `decode_OP_CODEC` joins them to
what stands there, in one pass. One kernel does all that a send asks for: with `lost` it adds what rounding has lost
before, and keeps what it loses now; with `spreads` the values become what arrives. Where nothing is kept, `lost` is 0.
The bits of NaN may differ from the host's, and denormal numbers count as zero, as in kernels.py.

A thread takes one element, and of int8 a warp one block: links between nodes are far slower than a GPU's memory.
"""

from __future__ import annotations

from collectives.codecs import BLOCK

WARP = 32  # threads that share a block of int8
CODES = {"bf16": "Short<Bfloat16>", "float16": "Short<Float16>", "int8": "Blocks"}

SIZES = f"enum {{ BLOCK = {BLOCK}, WARP = {WARP} }};"
COMMON = r"""
typedef unsigned char byte;

__device__ unsigned bits_of(float value) { return *(unsigned*)&value; }
__device__ float of_bits(unsigned bits) { return *(float*)&bits; }

struct Bfloat16 {
  unsigned short bits;
  static __device__ Bfloat16 of(float value) {
    unsigned bits = bits_of(value);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) return {0x7FC0};  // NaN
    return {(unsigned short)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)};
  }
  __device__ float number() const { return of_bits((unsigned)bits << 16); }
};

struct Float16 {
  half value;
  static __device__ Float16 of(float value) { return {narrow<half>(value)}; }
  __device__ float number() const { return widen(value); }
};

struct Given {  // what a send takes, and what it leaves behind
  float *values, *lost;
  int spreads;
  __device__ float operator[](size_type i) const { return lost ? lost[i] + values[i] : values[i]; }
  __device__ void arrives(size_type i, float given, float number) {
    if (lost) lost[i] = given - number;
    if (spreads) values[i] = number;
  }
};

template <class Code> struct Short {  // one after the other
  Code* codes;
  __device__ Short(const byte* message, size_type) : codes((Code*)message) {}
  __device__ float operator[](size_type i) const { return codes[i].number(); }
  __device__ void encode(Given given, size_type count) {
    for (size_type i = first(); i < count; i += stride()) {
      float value = given[i];
      codes[i] = Code::of(value);
      given.arrives(i, value, codes[i].number());
    }
  }
};

struct Blocks {  // scales, then numbers of 8 bits
  float* scales;
  signed char* numbers;
  __device__ Blocks(const byte* message, size_type count)
      : scales((float*)message), numbers((signed char*)(message + (count + BLOCK - 1) / BLOCK * sizeof(float))) {}
  __device__ float operator[](size_type i) const { return numbers[i] * scales[i / BLOCK]; }
  __device__ void encode(Given given, size_type count) {
    unsigned lane = threadIdx.x % WARP;
    for (size_type start = first() / WARP * BLOCK; start < count; start += stride() / WARP * BLOCK) {
      float values[BLOCK / WARP];
      unsigned most = 0;  // of the magnitudes, as bits: NaN is above infinity
#pragma unroll
      for (int j = 0; j < BLOCK / WARP; j++) {
        size_type i = start + j * WARP + lane;
        values[j] = i < count ? given[i] : 0;
        unsigned magnitude = bits_of(values[j]) & 0x7FFFFFFF;
        most = most > magnitude ? most : magnitude;
      }
      for (int other = WARP / 2; other; other /= 2) {
        unsigned magnitude = __shfl_xor_sync(0xFFFFFFFF, most, other);
        most = most > magnitude ? most : magnitude;
      }
      float scale = of_bits(most < 0x7F800000 ? most : 0x7FC00000) / 127;
      if (!lane) scales[start / BLOCK] = scale;
#pragma unroll
      for (int j = 0; j < BLOCK / WARP; j++) {
        size_type i = start + j * WARP + lane;
        if (i >= count) continue;
        numbers[i] = scale > 0 ? (signed char)rintf(values[j] / scale) : 0;
        given.arrives(i, values[j], numbers[i] * scale);
      }
    }
  }
};
"""

CODEC = """
extern "C" __global__ void encode_{codec}(float* values, byte* message, float* lost, int spreads, size_type count) {{
  {codes}(message, count).encode({{values, lost, spreads}}, count);
}}
extern "C" __global__ void decode_{codec}(float* values, const byte* message, size_type count) {{
  {codes} codes(message, count);
  for (size_type i = first(); i < count; i += stride()) values[i] = codes[i];
}}
"""

JOIN = """
extern "C" __global__ void decode_{op}_{codec}(float* target, const float* source, const byte* message,
                                               size_type count) {{
  {codes} codes(message, count);
  for (size_type i = first(); i < count; i += stride()) target[i] = {rule}::join(source[i], codes[i]);
}}
"""


def source(operations: tuple[str, ...]) -> str:
    """Return the source text of the codecs' kernels."""
    coded = [CODEC.format(codec=codec, codes=codes) for codec, codes in CODES.items()]
    joins = [
        JOIN.format(op=op, rule=op.title(), codec=codec, codes=codes)
        for codec, codes in CODES.items()
        for op in operations
    ]
    return "".join([SIZES, COMMON, *coded, *joins])


def names(operations: tuple[str, ...]) -> list[str]:
    """Return the kernels' names."""
    return [
        f"{what}_{codec}" for codec in CODES for what in ("encode", "decode", *(f"decode_{op}" for op in operations))
    ]


def threads(codec: str, count: int) -> int:
    """Return how many threads encode so many elements at once."""
    return WARP * -(-count // BLOCK) if codec == "int8" else count
