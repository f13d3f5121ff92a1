// Batch normalisation of x, Scale, and both with the addition of another blob and the ReLU behind them, in one pass each.
// A block computes a chunk of one channel, or of LANES packs of channels where channels lie last, and holds it in
// registers where it needs it twice. Kernels of chunks write partial sums; kernels with one block per channel add them up.

// x (outer x channels x inner). A thread's numbers are of one channel.
struct First {
  enum { HELD = 4, WIDTH = 4, OWN = 1, SIZE = HELD * WIDTH * THREADS };  // packs, numbers of each, channels of a thread
  int channel, chunk, chunks, begin, count, inner;  // begin: index of the first of the channel's `count` elements
  Index image, first;                               // elements of an image, and the offset of the channel in it
  Divisor by_inner;
  bool quads;

  __device__ First(int channels, int inner, int count, int chunks, word by_inner, bool aligned)
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

  __device__ int channel_of(int o) const { return channel; }
  __device__ int slot(int o) const { return channel * chunks + chunk; }  // of the chunk's sums
  __device__ bool stores() const { return threadIdx.x == 0; }
  __device__ void add_up(float (&sums)[OWN]) const { sums[0] = over_block<Sum>(sums[0]); }
};

// x (count x channels), with a multiple of WIDTH channels. Number k of a thread's packs is of its channel k.
template <class T>
struct Last {
  enum { HELD = 8, WIDTH = 16 / sizeof(T), OWN = WIDTH, LANES = 8, ROWS = THREADS / LANES, SIZE = HELD * ROWS };
  int channels, channel, chunk, chunks, begin, count;

  __device__ Last(int channels, int inner, int count, int chunks, word by_inner, bool aligned)
      : channels(channels), channel((blockIdx.x % groups(channels) * LANES + threadIdx.x % LANES) * WIDTH),
        chunk(blockIdx.x / groups(channels)), chunks(chunks), begin(chunk * SIZE), count(count) {}

  static __device__ int groups(int channels) { return (channels + LANES * WIDTH - 1) / (LANES * WIDTH); }
  __device__ int row(int i) const { return begin + i * ROWS + threadIdx.x / LANES; }
  __device__ bool has(int i, int k) const { return row(i) < count && channel < channels; }
  __device__ int size() const { return count - begin < SIZE ? count - begin : SIZE; }

  __device__ Pack<T> read(const T* array, int i) const {
    Pack<T> values = {};
    if (has(i, 0)) values = *(const Pack<T>*)(array + (Index)row(i) * channels + channel);
    return values;
  }
  __device__ void write(T* array, int i, const Pack<T>& values) const {
    if (has(i, 0)) *(Pack<T>*)(array + (Index)row(i) * channels + channel) = values;
  }

  __device__ int channel_of(int o) const { return channel < channels ? channel + o : 0; }
  __device__ int slot(int o) const { return (channel + o) * chunks + chunk; }
  __device__ bool stores() const { return threadIdx.x < LANES && channel < channels; }
  __device__ void add_up(float (&sums)[OWN]) const {
    __shared__ float of_warp[THREADS / WARP][LANES][OWN];
#pragma unroll
    for (int o = 0; o < OWN; o++)
#pragma unroll
      for (int lanes = WARP / 2; lanes >= LANES; lanes /= 2) sums[o] += __shfl_xor_sync(~0u, sums[o], lanes);
    __syncthreads();  // all have read what an earlier sum left
    if (threadIdx.x % WARP < LANES)
#pragma unroll
      for (int o = 0; o < OWN; o++) of_warp[threadIdx.x / WARP][threadIdx.x % LANES][o] = sums[o];
    __syncthreads();
#pragma unroll
    for (int o = 0; o < OWN; o++) {
      sums[o] = 0;
      for (int warp = 0; warp < THREADS / WARP; warp++) sums[o] += of_warp[warp][threadIdx.x % LANES][o];
    }
  }
};

#define CHANNELS int channels, int inner, int count, int chunks, word by_inner
#define OF_PART channels, inner, count, chunks, by_inner
#define EACH_PACK(Of, i) _Pragma("unroll") for (int i = 0; i < Of::HELD; i++)
#define EACH_NUMBER(Of, k) _Pragma("unroll") for (int k = 0; k < Of::WIDTH; k++)
#define EACH_OWN(Of, o) _Pragma("unroll") for (int o = 0; o < Of::OWN; o++)

// What a channel's values become: y = (x - mean) / deviation, times a factor, plus a bias.
struct Line {
  float mean, deviation, factor, bias;
  bool scaled;
  __device__ Line() {}
  __device__ Line(const float* means, const float* deviations, const float* factors, const float* biases, int c)
      : mean(means[c]), deviation(deviations[c]), factor(factors ? factors[c] : 1.0f), bias(biases ? biases[c] : 0.0f),
        scaled(factors) {}
  __device__ float normal(float x) const { return (x - mean) / deviation; }
  __device__ float of(float normal) const { return scaled ? normal * factor + bias : normal; }
};

// Each chunk's mean, and the sum of the squared deviations from that mean. x is copied into `kept`, if that is given.
template <class Of, class T>
__device__ void norm_chunks(const Of& part, const T* x, T* kept, float* means, float* squares) {
  Pack<T> held[Of::HELD];
  float sums[Of::OWN] = {}, offs[Of::OWN] = {};
  EACH_PACK(Of, i) held[i] = part.read(x, i);
  if (kept) EACH_PACK(Of, i) part.write(kept, i, held[i]);
  EACH_PACK(Of, i) EACH_NUMBER(Of, k) sums[k % Of::OWN] += held[i].get(k);
  part.add_up(sums);
  EACH_OWN(Of, o) sums[o] /= part.size();
  EACH_PACK(Of, i) EACH_NUMBER(Of, k) {
    float distance = part.has(i, k) ? held[i].get(k) - sums[k % Of::OWN] : 0.0f;
    offs[k % Of::OWN] += distance * distance;
  }
  part.add_up(offs);
  if (part.stores()) EACH_OWN(Of, o) means[part.slot(o)] = sums[o], squares[part.slot(o)] = offs[o];
}

// y = x normalised and scaled, plus `other`, rectified; each but the first is left out if it is not given.
template <class Of, class T>
__device__ void normalise(const Of& part, const T* x, const float* mean, const float* deviation, const float* factor,
                          const float* bias, const T* other, T* y, int rectified) {
  Line lines[Of::OWN];
  EACH_OWN(Of, o) lines[o] = Line(mean, deviation, factor, bias, part.channel_of(o));
  EACH_PACK(Of, i) {
    Pack<T> values = part.read(x, i), others = {};
    if (other) others = part.read(other, i);
    EACH_NUMBER(Of, k) {
      const Line& line = lines[k % Of::OWN];
      float value = line.of(line.normal(values.get(k)));
      if (other) value += others.get(k);
      if (rectified) value = value > 0 || value != value ? value : 0.0f;
      values.set(k, value);
    }
    part.write(y, i, values);
  }
}

// Each chunk's sum of dy, and of dy times the normalised values. Where the values were `rectified`, dy counts where they
// are above 0.
template <class Of, class T>
__device__ void norm_back_chunks(const Of& part, const T* x, const T* dy, const float* mean, const float* deviation,
                                 const float* factor, const float* bias, float* sums, float* slopes, int rectified) {
  Line lines[Of::OWN];
  float of_sum[Of::OWN] = {}, of_slope[Of::OWN] = {};
  EACH_OWN(Of, o) lines[o] = Line(mean, deviation, factor, bias, part.channel_of(o));
  EACH_PACK(Of, i) {
    Pack<T> values = part.read(x, i), gradients = part.read(dy, i);
    EACH_NUMBER(Of, k) {
      const Line& line = lines[k % Of::OWN];
      float normal = line.normal(values.get(k)), gradient = gradients.get(k);
      if ((rectified && !(line.of(normal) > 0)) || !part.has(i, k)) gradient = 0;
      of_sum[k % Of::OWN] += gradient, of_slope[k % Of::OWN] += part.has(i, k) ? gradient * normal : 0.0f;
    }
  }
  part.add_up(of_sum), part.add_up(of_slope);
  if (part.stores()) EACH_OWN(Of, o) sums[part.slot(o)] = of_sum[o], slopes[part.slot(o)] = of_slope[o];
}

// dx from dy and the channels' totals (4 x channels): the sums of dy and of dy times the normalised values, the factor
// and the bias. With fixed statistics dx is dy times the factor over the deviation; with `bare`, dy times the factor.
template <class Of, class T>
__device__ void normalise_back(const Of& part, const T* x, const T* dy, const float* mean, const float* deviation,
                               const float* totals, T* dx, int channels, float elements, int rectified, int fixed,
                               int bare) {
  Line lines[Of::OWN];
  float sums[Of::OWN], slopes[Of::OWN];
  EACH_OWN(Of, o) {
    int c = part.channel_of(o);
    lines[o] = Line(mean, deviation, totals + 2 * (Index)channels, totals + 3 * (Index)channels, c);
    sums[o] = fixed || bare ? 0.0f : totals[c] / elements;
    slopes[o] = fixed || bare ? 0.0f : totals[channels + (Index)c] / elements;
  }
  EACH_PACK(Of, i) {
    Pack<T> values = part.read(x, i), gradients = part.read(dy, i);
    EACH_NUMBER(Of, k) {
      const Line& line = lines[k % Of::OWN];
      float normal = line.normal(values.get(k)), gradient = gradients.get(k);
      if (rectified && !(line.of(normal) > 0)) gradient = 0;
      gradient = (gradient - sums[k % Of::OWN] - normal * slopes[k % Of::OWN]) * line.factor;
      gradients.set(k, bare ? gradient : gradient / line.deviation);
    }
    part.write(dx, i, gradients);
  }
}

// The layer Scale alone: y = factor x + bias. In place, x is also copied into `kept`.
template <class Of, class T>
__device__ void scale(const Of& part, const T* x, const float* factor, const float* bias, T* kept, T* y) {
  float by[Of::OWN], plus[Of::OWN];
  EACH_OWN(Of, o) by[o] = factor[part.channel_of(o)], plus[o] = bias ? bias[part.channel_of(o)] : 0.0f;
  EACH_PACK(Of, i) {
    Pack<T> values = part.read(x, i);
    if (kept) part.write(kept, i, values);
    EACH_NUMBER(Of, k) values.set(k, values.get(k) * by[k % Of::OWN] + plus[k % Of::OWN]);
    part.write(y, i, values);
  }
}

// dx = factor dy, and each chunk's sum of dy, and of dy x.
template <class Of, class T>
__device__ void scale_back(const Of& part, const T* x, const T* dy, const float* factor, T* dx, float* sums,
                           float* slopes) {
  float by[Of::OWN], of_sum[Of::OWN] = {}, of_slope[Of::OWN] = {};
  EACH_OWN(Of, o) by[o] = factor[part.channel_of(o)];
  EACH_PACK(Of, i) {
    Pack<T> values = part.read(x, i), gradients = part.read(dy, i);
    EACH_NUMBER(Of, k) {
      of_sum[k % Of::OWN] += gradients.get(k), of_slope[k % Of::OWN] += gradients.get(k) * values.get(k);
      gradients.set(k, gradients.get(k) * by[k % Of::OWN]);
    }
    part.write(dx, i, gradients);
  }
  part.add_up(of_sum), part.add_up(of_slope);
  if (part.stores()) EACH_OWN(Of, o) sums[part.slot(o)] = of_sum[o], slopes[part.slot(o)] = of_slope[o];
}

// Each chunk's sum, for the gradient of a bias.
template <class Of, class T>
__device__ void sum_chunks(const Of& part, const T* x, float* sums) {
  float of_sum[Of::OWN] = {};
  EACH_PACK(Of, i) {
    Pack<T> values = part.read(x, i);
    EACH_NUMBER(Of, k) of_sum[k % Of::OWN] += values.get(k);
  }
  part.add_up(of_sum);
  if (part.stores()) EACH_OWN(Of, o) sums[part.slot(o)] = of_sum[o];
}

#define NORM(Of, T, form)                                                                                             \
  KERNEL norm_chunks_##form(const T* x, T* kept, float* means, float* squares, CHANNELS) {                            \
    norm_chunks(Of(OF_PART, for_quads(x) && for_quads(kept)), x, kept, means, squares);                               \
  }                                                                                                                   \
  KERNEL normalise_##form(const T* x, const float* mean, const float* deviation, const float* factor,                 \
                          const float* bias, const T* other, T* y, CHANNELS, int rectified) {                         \
    normalise(Of(OF_PART, for_quads(x) && for_quads(other) && for_quads(y)), x, mean, deviation, factor, bias, other, \
              y, rectified);                                                                                          \
  }                                                                                                                   \
  KERNEL norm_back_chunks_##form(const T* x, const T* dy, const float* mean, const float* deviation,                  \
                                 const float* factor, const float* bias, float* sums, float* slopes, CHANNELS,        \
                                 int rectified) {                                                                     \
    norm_back_chunks(Of(OF_PART, for_quads(x) && for_quads(dy)), x, dy, mean, deviation, factor, bias, sums, slopes,  \
                     rectified);                                                                                      \
  }                                                                                                                   \
  KERNEL normalise_back_##form(const T* x, const T* dy, const float* mean, const float* deviation,                    \
                               const float* totals, T* dx, CHANNELS, float elements, int rectified, int fixed,        \
                               int bare) {                                                                            \
    normalise_back(Of(OF_PART, for_quads(x) && for_quads(dy) && for_quads(dx)), x, dy, mean, deviation, totals, dx,   \
                   channels, elements, rectified, fixed, bare);                                                       \
  }                                                                                                                   \
  KERNEL scale_##form(const T* x, const float* factor, const float* bias, T* kept, T* y, CHANNELS) {                  \
    scale(Of(OF_PART, for_quads(x) && for_quads(kept) && for_quads(y)), x, factor, bias, kept, y);                    \
  }                                                                                                                   \
  KERNEL scale_back_##form(const T* x, const T* dy, const float* factor, T* dx, float* sums, float* slopes,           \
                           CHANNELS) {                                                                                \
    scale_back(Of(OF_PART, for_quads(x) && for_quads(dy) && for_quads(dx)), x, dy, factor, dx, sums, slopes);         \
  }                                                                                                                   \
  KERNEL sum_chunks_##form(const T* x, float* sums, CHANNELS) { sum_chunks(Of(OF_PART, for_quads(x)), x, sums); }

NORM(First, float, first)
NORM(Last<float>, float, last)
NORM(Last<bf16>, bf16, last_bf16)

__device__ inline int size_of(int chunk, int size, int count) {
  return count - chunk * size < size ? count - chunk * size : size;
}

// Compute the statistics of a channel from its chunks of `size` elements (Chan, Golub and LeVeque 1979, equation 2.1),
// and add them to the running sums; one block per channel.
KERNEL norm_statistics(const float* means, const float* squares, float* means_of, float* deviation, float* mean_sum,
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
  means_of[blockIdx.x] = mean, deviation[blockIdx.x] = sqrtf(variance + eps);
  mean_sum[blockIdx.x] = mean_sum[blockIdx.x] * fraction + mean;
  variance_sum[blockIdx.x] = variance_sum[blockIdx.x] * fraction + variance * unbias;
  if (blockIdx.x == 0) *weight = *weight * fraction + 1;
}

// Mean and standard deviation by the running sums; 0 and sqrt(eps) before there are any.
KERNEL known_statistics(Index count, const float* means, const float* variances, const float* weight, float* mean,
                        float* deviation, float eps) {
  float scale = *weight == 0 ? 0.0f : 1 / *weight;
  EACH(c, count) mean[c] = means[c] * scale, deviation[c] = sqrtf(variances[c] * scale + eps);
}

// The totals that normalise_back reads, and the gradients of Scale's parameters, which are overwritten unless they are to
// be added to; one block per channel. The factor and the bias are copied, as they may be updated before the totals are
// read.
KERNEL norm_totals(const float* sums, const float* slopes, const float* factor, const float* bias, float* totals,
                   float* of_factor, float* of_bias, int add_factor, int add_bias, int channels, int chunks) {
  float sum = 0, slope = 0;
  Index c = blockIdx.x, first = c * chunks;
  for (int k = threadIdx.x; k < chunks; k += blockDim.x) sum += sums[first + k], slope += slopes[first + k];
  sum = over_block<Sum>(sum), slope = over_block<Sum>(slope);
  if (threadIdx.x) return;
  totals[c] = sum, totals[channels + c] = slope;
  totals[2 * (Index)channels + c] = factor ? factor[c] : 1.0f;
  totals[3 * (Index)channels + c] = bias ? bias[c] : 0.0f;
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
