// Batch normalisation of x (outer x channels x inner). Each block reads CHUNK elements of one channel once, into the
// registers of its threads. A first kernel writes partial sums per chunk; each block of the second adds up those of its
// channel.
#define HELD 4  // quads per thread
#define CHUNK (4 * HELD * THREADS)

struct Part {
  int channel, chunk, begin, count, inner;  // begin: index of the block's first of the channel's `count` elements
  Index image, first;                       // elements of an image, and the offset of the channel in it
  Divisor by_inner;
  bool quads;

  __device__ Part(int channels, int inner, int count, int chunks, word by_inner, bool aligned)
      : channel(blockIdx.x / chunks), chunk(blockIdx.x % chunks), begin(chunk * CHUNK), count(count), inner(inner),
        image((Index)channels * inner), first((Index)channel * inner), by_inner(by_inner),
        quads(aligned && inner % 4 == 0) {}

  // The index in the channel of a thread's element i.
  __device__ int place(int i) const {
    return begin + (quads ? 4 * (i / 4 * THREADS + threadIdx.x) + i % 4 : i * THREADS + threadIdx.x);
  }
  __device__ bool has(int i) const { return place(i) < count; }
  __device__ Index at(int place) const {
    unsigned row = by_inner(place);
    return row * image + first + (place - row * inner);
  }
  __device__ int size() const { return count - begin < CHUNK ? count - begin : CHUNK; }

  __device__ void read(const float* array, Quad (&held)[HELD]) const {
#pragma unroll
    for (int i = 0; i < HELD; i++) {
      held[i] = {};
      if (quads) {
        if (has(4 * i)) held[i] = *(const Quad*)(array + at(place(4 * i)));
      } else {
#pragma unroll
        for (int k = 0; k < 4; k++)
          if (has(4 * i + k)) held[i].at[k] = array[at(place(4 * i + k))];
      }
    }
  }
  __device__ void write(float* array, const Quad (&held)[HELD]) const {
#pragma unroll
    for (int i = 0; i < HELD; i++)
      if (quads) {
        if (has(4 * i)) *(Quad*)(array + at(place(4 * i))) = held[i];
      } else {
#pragma unroll
        for (int k = 0; k < 4; k++)
          if (has(4 * i + k)) array[at(place(4 * i + k))] = held[i].at[k];
      }
  }
};

#define CHANNELS int channels, int inner, int count, int chunks, word by_inner
#define OF_PART channels, inner, count, chunks, by_inner
#define EACH_HELD(i, k)         \
  _Pragma("unroll")             \
  for (int i = 0; i < HELD; i++) \
    _Pragma("unroll") for (int k = 0; k < 4; k++)

// Each chunk's mean, and the sum of the squared deviations from that mean.
KERNEL norm_chunks(const float* x, float* means, float* squares, CHANNELS) {
  Part part(OF_PART, for_quads(x));
  Quad held[HELD];
  part.read(x, held);
  float sum = 0, off = 0;
  EACH_HELD(i, k) sum += held[i].at[k];
  float mean = over_block<Sum>(sum) / part.size();
  EACH_HELD(i, k) {
    float distance = part.has(4 * i + k) ? held[i].at[k] - mean : 0.0f;
    off += distance * distance;
  }
  off = over_block<Sum>(off);
  if (threadIdx.x == 0) means[blockIdx.x] = mean, squares[blockIdx.x] = off;
}

__device__ inline int size_of(int chunk, int count) { return count - chunk * CHUNK < CHUNK ? count - chunk * CHUNK : CHUNK; }

// Compute the statistics of the channel from its chunks (Chan, Golub and LeVeque 1979, equation 2.1), and write x,
// normalised by them, into `kept` and y. Block 0 of a channel also updates the running sums.
KERNEL normalise(const float* x, const float* means, const float* squares, float* deviation, float* kept, float* y,
                 float* mean_sum, float* variance_sum, float* weight, CHANNELS, float eps, float fraction, float unbias) {
  Part part(OF_PART, for_quads(x) && for_quads(kept) && for_quads(y));
  Quad held[HELD];
  part.read(x, held);
  means += part.channel * (Index)chunks, squares += part.channel * (Index)chunks;
  float sum = 0, off = 0;
  for (int c = threadIdx.x; c < chunks; c += blockDim.x) sum += means[c] * size_of(c, count);
  float mean = over_block<Sum>(sum) / count;
  for (int c = threadIdx.x; c < chunks; c += blockDim.x)
    off += squares[c] + (means[c] - mean) * (means[c] - mean) * size_of(c, count);
  float variance = over_block<Sum>(off) / count, own = sqrtf(variance + eps);
  EACH_HELD(i, k) held[i].at[k] = (held[i].at[k] - mean) / own;
  part.write(kept, held);
  part.write(y, held);
  if (part.chunk || threadIdx.x) return;
  deviation[part.channel] = own;
  mean_sum[part.channel] = mean_sum[part.channel] * fraction + mean;
  variance_sum[part.channel] = variance_sum[part.channel] * fraction + variance * unbias;
  if (part.channel == 0) *weight = *weight * fraction + 1;
}

// Normalise x by given statistics.
KERNEL normalise_by(const float* x, const float* mean, const float* deviation, float* kept, float* y, CHANNELS) {
  Part part(OF_PART, for_quads(x) && for_quads(kept) && for_quads(y));
  Quad held[HELD];
  part.read(x, held);
  float own = mean[part.channel], off = deviation[part.channel];
  EACH_HELD(i, k) held[i].at[k] = (held[i].at[k] - own) / off;
  part.write(kept, held);
  part.write(y, held);
}

// Each chunk's sum of dy, and of dy times the normalised values.
KERNEL norm_back_chunks(const float* kept, const float* dy, float* sums, float* slopes, CHANNELS) {
  Part part(OF_PART, for_quads(kept) && for_quads(dy));
  Quad values[HELD], gradients[HELD];
  part.read(kept, values);
  part.read(dy, gradients);
  float sum = 0, slope = 0;
  EACH_HELD(i, k) sum += gradients[i].at[k], slope += gradients[i].at[k] * values[i].at[k];
  sum = over_block<Sum>(sum), slope = over_block<Sum>(slope);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum, slopes[blockIdx.x] = slope;
}

// dx from dy, the normalised values and the sums of the chunks.
KERNEL normalise_back(const float* kept, const float* dy, const float* sums, const float* slopes, const float* deviation,
                      float* dx, CHANNELS) {
  Part part(OF_PART, for_quads(kept) && for_quads(dy) && for_quads(dx));
  Quad values[HELD], gradients[HELD];
  part.read(kept, values);
  part.read(dy, gradients);
  sums += part.channel * (Index)chunks, slopes += part.channel * (Index)chunks;
  float sum = 0, slope = 0, own = deviation[part.channel];
  for (int c = threadIdx.x; c < chunks; c += blockDim.x) sum += sums[c], slope += slopes[c];
  sum = over_block<Sum>(sum) / count, slope = over_block<Sum>(slope) / count;
  EACH_HELD(i, k) gradients[i].at[k] = (gradients[i].at[k] - sum - values[i].at[k] * slope) / own;
  part.write(dx, gradients);
}

// Mean and standard deviation by the running sums; 0 and sqrt(eps) before there are any.
KERNEL known_statistics(Index count, const float* means, const float* variances, const float* weight, float* mean,
                        float* deviation, float eps) {
  float scale = *weight == 0 ? 0.0f : 1 / *weight;
  EACH(c, count) mean[c] = means[c] * scale, deviation[c] = sqrtf(variances[c] * scale + eps);
}

// The layer Scale: y = factor x + bias. In place, x is also copied into `kept`.
KERNEL scale(const float* x, const float* factor, const float* bias, float* kept, float* y, CHANNELS) {
  Part part(OF_PART, for_quads(x) && for_quads(kept) && for_quads(y));
  Quad held[HELD];
  part.read(x, held);
  if (kept) part.write(kept, held);
  float by = factor[part.channel], plus = bias ? bias[part.channel] : 0.0f;
  EACH_HELD(i, k) held[i].at[k] = held[i].at[k] * by + plus;
  part.write(y, held);
}

// dx = factor dy, and each chunk's sum of dy, and of dy x.
KERNEL scale_back(const float* x, const float* dy, const float* factor, float* dx, float* sums, float* slopes,
                  CHANNELS) {
  Part part(OF_PART, for_quads(x) && for_quads(dy) && for_quads(dx));
  Quad values[HELD], gradients[HELD];
  part.read(x, values);
  part.read(dy, gradients);
  float sum = 0, slope = 0, by = factor[part.channel];
  EACH_HELD(i, k) {
    sum += gradients[i].at[k], slope += gradients[i].at[k] * values[i].at[k];
    gradients[i].at[k] *= by;
  }
  part.write(dx, gradients);
  sum = over_block<Sum>(sum), slope = over_block<Sum>(slope);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum, slopes[blockIdx.x] = slope;
}

// Each chunk's sum, for the gradient of a bias.
KERNEL sum_chunks(const float* x, float* sums, CHANNELS) {
  Part part(OF_PART, for_quads(x));
  Quad held[HELD];
  part.read(x, held);
  float sum = 0;
  EACH_HELD(i, k) sum += held[i].at[k];
  sum = over_block<Sum>(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// Add the sums of a channel's chunks to the gradients of its bias and factor; one block per channel.
KERNEL scale_gradients(const float* sums, const float* slopes, int chunks, float* bias, float* factor) {
  float sum = 0, slope = 0;
  Index first = blockIdx.x * (Index)chunks;
  for (int c = threadIdx.x; bias && c < chunks; c += blockDim.x) sum += sums[first + c];
  for (int c = threadIdx.x; factor && c < chunks; c += blockDim.x) slope += slopes[first + c];
  sum = over_block<Sum>(sum), slope = over_block<Sum>(slope);
  if (threadIdx.x) return;
  if (bias) bias[blockIdx.x] += sum;
  if (factor) factor[blockIdx.x] += slope;
}
