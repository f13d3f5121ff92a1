// Dropout with the random numbers of numpy's Philox: Philox4x64 with ten rounds (Salmon et al. 2011, section 3.3).
// A thread computes one step of the counter: 8 float32 numbers of a row. Each row begins with a new step.
struct Four {
  word at[4];
};

__device__ inline Four philox(word counter, word key0, word key1) {
  word a = counter, b = 0, c = 0, d = 0;
  for (int round = 0; round < 10; round++) {
    word high0 = __umul64hi(0xD2E7470EE14C6C93ull, a), low0 = 0xD2E7470EE14C6C93ull * a;
    word high1 = __umul64hi(0xCA5A826395121157ull, c), low1 = 0xCA5A826395121157ull * c;
    a = high1 ^ b ^ key0, b = low1, c = high0 ^ d ^ key1, d = low0;
    key0 += 0x9E3779B97F4A7C15ull, key1 += 0xBB67AE8584CAA73Bull;
  }
  Four result = {{a, b, c, d}};
  return result;
}

KERNEL set_key(Index count, word* key, word key0, word key1) {
  EACH(i, count) key[i] = i ? key1 : key0;
}

KERNEL dropout(Index count, const float* x, float* y, const word* key, Index first_row, int per_row, int steps,
               float ratio, float scale) {
  EACH(i, count) {
    Index row = i / steps, step = i % steps;
    Four drawn = philox((first_row + row) * steps + step + 1, key[0], key[1]);
    for (int k = 0; k < 8 && step * 8 + k < per_row; k++) {
      Index j = row * per_row + step * 8 + k;
      unsigned half = (unsigned)(k % 2 ? drawn.at[k / 2] >> 32 : drawn.at[k / 2]);
      float uniform = (half >> 8) * (1.0f / 16777216.0f);
      y[j] = x[j] * (uniform >= ratio ? 1.0f : 0.0f) * scale;
    }
  }
}
