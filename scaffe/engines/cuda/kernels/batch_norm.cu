// Batch normalisation of x (outer x channels x inner), Scale, and both with the addition of another blob and the ReLU
// behind them, in one pass each. A block computes a chunk of one channel, and holds it in registers where it needs it
// twice. Kernels of chunks write partial sums; kernels with one block per channel, at the end, add them up: those of
// batch_norm_last.cu too.
struct Chunk {
  enum { HELD = 4, WIDTH = 4, SIZE = HELD * WIDTH * THREADS };  // packs of a thread, numbers of each
  int channel, chunk, chunks, begin, count, inner;  // begin: index of the first of the channel's `count` elements
  Index image, first;                               // elements of an image, and the offset of the channel in it
  Divisor by_inner;
  bool quads;

  __device__ Chunk(int channels, int inner, int count, int chunks, word by_inner, bool aligned)
      : channel(blockIdx.x / chunks), chunk(blockIdx.x % chunks), chunks(chunks), begin(chunk * SIZE), count(count),
        inner(inner), image((Index)channels * inner), first((Index)channel * inner), by_inner(by_inner),
        quads(aligned && inner % WIDTH == 0) {}

  // The index in the channel of number k of a thread's pack i.
  __device__ int place(int i, int k) const {
    return begin + (quads ? WIDTH * (i * THREADS + threadIdx.x) + k : (WIDTH * i + k) * THREADS + threadIdx.x);
  }
  __device__ bool has(int i, int k) const { return place(i, k) < count; }
  __device__ Index at(int place) const {
    unsigned row = by_inner(place);
    return row * image + first + (place - row * inner);
  }
  __device__ int size() const { return count - begin < SIZE ? count - begin : SIZE; }

  __device__ Pack<float> read(const float* array, int i) const {
    Pack<float> values = {};
    if (quads) {
      if (has(i, 0)) values = *(const Pack<float>*)(array + at(place(i, 0)));
    } else {
#pragma unroll
      for (int k = 0; k < WIDTH; k++)
        if (has(i, k)) values.at[k] = array[at(place(i, k))];
    }
    return values;
  }
  __device__ void write(float* array, int i, const Pack<float>& values) const {
    if (quads) {
      if (has(i, 0)) *(Pack<float>*)(array + at(place(i, 0))) = values;
    } else {
#pragma unroll
      for (int k = 0; k < WIDTH; k++)
        if (has(i, k)) array[at(place(i, k))] = values.at[k];
    }
  }

  __device__ int slot() const { return channel * chunks + chunk; }  // of the chunk's sums
};

#define CHANNELS int channels, int inner, int count, int chunks, word by_inner
#define CHUNK(aligned) Chunk(channels, inner, count, chunks, by_inner, aligned)
#define EACH_PACK(i) _Pragma("unroll") for (int i = 0; i < Chunk::HELD; i++)
#define EACH_NUMBER(k) _Pragma("unroll") for (int k = 0; k < Chunk::WIDTH; k++)

__device__ inline Line line_of(int c, const float* mean, const float* inverse, const float* factor, const float* bias) {
  return {mean[c], inverse[c] * (factor ? factor[c] : 1.0f), bias ? bias[c] : 0.0f};
}

// Each chunk's mean, and the sum of the squared deviations from that mean. x is copied into `kept`, if that is given.
KERNEL norm_chunks_first(const float* x, float* kept, float* means, float* squares, CHANNELS) {
  Chunk chunk = CHUNK(for_quads(x) && for_quads(kept));
  Pack<float> held[Chunk::HELD];
  float sum = 0, off = 0;
  EACH_PACK(i) held[i] = chunk.read(x, i);
  if (kept) EACH_PACK(i) chunk.write(kept, i, held[i]);
  EACH_PACK(i) EACH_NUMBER(k) sum += held[i].get(k);
  float mean = over_block<Sum>(sum) / chunk.size();
  EACH_PACK(i) EACH_NUMBER(k) {
    float distance = chunk.has(i, k) ? held[i].get(k) - mean : 0.0f;
    off += distance * distance;
  }
  off = over_block<Sum>(off);
  if (threadIdx.x == 0) means[chunk.slot()] = mean, squares[chunk.slot()] = off;
}

// y = x normalised and scaled, plus `other`, rectified; each but the first is left out if it is not given.
KERNEL normalise_first(const float* x, const float* mean, const float* inverse, const float* factor, const float* bias,
                       const float* other, float* y, CHANNELS, int rectified) {
  Chunk chunk = CHUNK(for_quads(x) && for_quads(other) && for_quads(y));
  Line line = line_of(chunk.channel, mean, inverse, factor, bias);
  EACH_PACK(i) {
    Pack<float> values = chunk.read(x, i), others = {};
    if (other) others = chunk.read(other, i);
    EACH_NUMBER(k) {
      float value = line.of(line.distance(values.get(k)));
      if (other) value += others.get(k);
      values.set(k, rectified ? rectify(value) : value);
    }
    chunk.write(y, i, values);
  }
}

// Each chunk's sum of dy, and of dy times the distance from the mean. Where the values were `rectified`, dy counts where
// they are above 0.
KERNEL norm_back_chunks_first(const float* x, const float* dy, const float* mean, const float* inverse,
                              const float* factor, const float* bias, float* sums, float* slopes, CHANNELS,
                              int rectified) {
  Chunk chunk = CHUNK(for_quads(x) && for_quads(dy));
  Line line = line_of(chunk.channel, mean, inverse, factor, bias);
  float sum = 0, slope = 0;
  EACH_PACK(i) {
    Pack<float> values = chunk.read(x, i), gradients = chunk.read(dy, i);
    EACH_NUMBER(k) {
      float distance = line.distance(values.get(k)), gradient = gradients.get(k);
      if ((rectified && !(line.of(distance) > 0)) || !chunk.has(i, k)) gradient = 0;
      sum += gradient, slope += chunk.has(i, k) ? gradient * distance : 0.0f;
    }
  }
  sum = over_block<Sum>(sum), slope = over_block<Sum>(slope);
  if (threadIdx.x == 0) sums[chunk.slot()] = sum, slopes[chunk.slot()] = slope;
}

// dx from dy and the channels' terms, those of norm_totals; with `bare`, the gradient of the normalised values.
KERNEL normalise_back_first(const float* x, const float* dy, const float* mean, const float* terms, float* dx, CHANNELS,
                            int rectified, int bare) {
  Chunk chunk = CHUNK(for_quads(x) && for_quads(dy) && for_quads(dx));
  terms += chunk.channel;
  Line line = {mean[chunk.channel], terms[0], terms[channels]};
  float by = bare ? terms[4 * (Index)channels] : line.by;
  float slope = bare ? 0.0f : terms[2 * (Index)channels], level = bare ? 0.0f : terms[3 * (Index)channels];
  EACH_PACK(i) {
    Pack<float> values = chunk.read(x, i), gradients = chunk.read(dy, i);
    EACH_NUMBER(k) {
      float distance = line.distance(values.get(k)), gradient = gradients.get(k);
      if (rectified && !(line.of(distance) > 0)) gradient = 0;
      gradients.set(k, fmaf(-distance, slope, fmaf(gradient, by, -level)));
    }
    chunk.write(dx, i, gradients);
  }
}

// The layer Scale alone: y = factor x + bias. In place, x is also copied into `kept`.
KERNEL scale_first(const float* x, const float* factor, const float* bias, float* kept, float* y, CHANNELS) {
  Chunk chunk = CHUNK(for_quads(x) && for_quads(kept) && for_quads(y));
  float by = factor[chunk.channel], plus = bias ? bias[chunk.channel] : 0.0f;
  EACH_PACK(i) {
    Pack<float> values = chunk.read(x, i);
    if (kept) chunk.write(kept, i, values);
    EACH_NUMBER(k) values.set(k, values.get(k) * by + plus);
    chunk.write(y, i, values);
  }
}

// dx = factor dy, and each chunk's sum of dy, and of dy x.
KERNEL scale_back_first(const float* x, const float* dy, const float* factor, float* dx, float* sums, float* slopes,
                        CHANNELS) {
  Chunk chunk = CHUNK(for_quads(x) && for_quads(dy) && for_quads(dx));
  float by = factor[chunk.channel], sum = 0, slope = 0;
  EACH_PACK(i) {
    Pack<float> values = chunk.read(x, i), gradients = chunk.read(dy, i);
    EACH_NUMBER(k) {
      sum += gradients.get(k), slope += gradients.get(k) * values.get(k);
      gradients.set(k, gradients.get(k) * by);
    }
    chunk.write(dx, i, gradients);
  }
  sum = over_block<Sum>(sum), slope = over_block<Sum>(slope);
  if (threadIdx.x == 0) sums[chunk.slot()] = sum, slopes[chunk.slot()] = slope;
}

// Each chunk's sum, for the gradient of a bias.
KERNEL sum_chunks_first(const float* x, float* sums, CHANNELS) {
  Chunk chunk = CHUNK(for_quads(x));
  float sum = 0;
  EACH_PACK(i) {
    Pack<float> values = chunk.read(x, i);
    EACH_NUMBER(k) sum += values.get(k);
  }
  sum = over_block<Sum>(sum);
  if (threadIdx.x == 0) sums[chunk.slot()] = sum;
}

__device__ inline int size_of(int chunk, int size, int count) {
  return count - chunk * size < size ? count - chunk * size : size;
}

// Compute the statistics of a channel from its chunks of `size` elements (Chan, Golub and LeVeque 1979, equation 2.1),
// and add them to the running sums; one block per channel.
KERNEL norm_statistics(const float* means, const float* squares, float* means_of, float* inverse, float* mean_sum,
                       float* variance_sum, float* weight, int count, int chunks, int size, float eps, float fraction,
                       float unbias) {
  means += blockIdx.x * (Index)chunks, squares += blockIdx.x * (Index)chunks;
  float sum = 0, off = 0;
  for (int c = threadIdx.x; c < chunks; c += blockDim.x) sum += means[c] * size_of(c, size, count);
  float mean = over_block<Sum>(sum) / count;
  for (int c = threadIdx.x; c < chunks; c += blockDim.x)
    off += squares[c] + (means[c] - mean) * (means[c] - mean) * size_of(c, size, count);
  float variance = over_block<Sum>(off) / count;
  if (threadIdx.x) return;
  means_of[blockIdx.x] = mean, inverse[blockIdx.x] = 1 / sqrtf(variance + eps);
  mean_sum[blockIdx.x] = mean_sum[blockIdx.x] * fraction + mean;
  variance_sum[blockIdx.x] = variance_sum[blockIdx.x] * fraction + variance * unbias;
  if (blockIdx.x == 0) *weight = *weight * fraction + 1;
}

// Mean and inverse standard deviation by the running sums; 0 and 1 / sqrt(eps) before there are any.
KERNEL known_statistics(Index count, const float* means, const float* variances, const float* weight, float* mean,
                        float* inverse, float eps) {
  float scale = *weight == 0 ? 0.0f : 1 / *weight;
  EACH(c, count) mean[c] = means[c] * scale, inverse[c] = 1 / sqrtf(variances[c] * scale + eps);
}

// The terms (5 x channels) that normalise_back reads: with d, the distance from the mean, the normalised values became
// terms[0] d + terms[1], and dx = terms[0] dy - terms[2] d - terms[3]. The factor is terms[4]. These are copies, as an
// update may come before they are read. `share` is 1 / elements of a channel, and 0 where the statistics were given.
// The gradients of Scale's parameters are overwritten unless they are to be added to. One block per channel.
KERNEL norm_totals(const float* sums, const float* slopes, const float* inverse, const float* factor, const float* bias,
                   float* terms, float* of_factor, float* of_bias, int add_factor, int add_bias, int channels,
                   int chunks, float share) {
  float sum = 0, slope = 0;
  Index c = blockIdx.x, first = c * chunks;
  for (int k = threadIdx.x; k < chunks; k += blockDim.x) sum += sums[first + k], slope += slopes[first + k];
  sum = over_block<Sum>(sum), slope = over_block<Sum>(slope);
  if (threadIdx.x) return;
  float of_one = inverse[c], by = factor ? factor[c] : 1.0f, scaled = by * of_one;
  slope *= of_one;  // now of dy times the normalised values
  terms += c;
  terms[0] = scaled, terms[channels] = bias ? bias[c] : 0.0f;
  terms[2 * (Index)channels] = scaled * of_one * (slope * share), terms[3 * (Index)channels] = scaled * (sum * share);
  terms[4 * (Index)channels] = by;
  if (of_bias) of_bias[c] = sum + (add_bias ? of_bias[c] : 0.0f);
  if (of_factor) of_factor[c] = slope + (add_factor ? of_factor[c] : 0.0f);
}

// The gradients of a channel's factor and bias from the sums of its chunks; one block per channel.
KERNEL scale_gradients(const float* sums, const float* slopes, int chunks, float* of_factor, float* of_bias,
                       int add_factor, int add_bias) {
  float sum = 0, slope = 0;
  Index first = blockIdx.x * (Index)chunks;
  for (int c = threadIdx.x; of_bias && c < chunks; c += blockDim.x) sum += sums[first + c];
  for (int c = threadIdx.x; of_factor && c < chunks; c += blockDim.x) slope += slopes[first + c];
  sum = over_block<Sum>(sum), slope = over_block<Sum>(slope);
  if (threadIdx.x) return;
  if (of_bias) of_bias[blockIdx.x] = sum + (add_bias ? of_bias[blockIdx.x] : 0.0f);
  if (of_factor) of_factor[blockIdx.x] = slope + (add_factor ? of_factor[blockIdx.x] : 0.0f);
}
