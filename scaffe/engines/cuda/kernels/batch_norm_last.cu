// Batch normalisation and Scale of maps channels last (rows x channels, a multiple of a pack), with what is behind them:
// batch_norm.cu has the formulas, and the kernels that add up what those here write for each chunk.
//
// `lanes` threads side by side take a pack of channels each of one row, and a block so many rows at once. Each row of the
// grid takes a chunk of `size` rows. A thread reads HELD of its rows before it computes any: the memory is busy then.
#define HELD 4
#define MOST_LANES 16

template <class T>
struct Own {  // a number for each channel of a thread
  float at[16 / sizeof(T)];
};

template <class T>
struct Chunk {
  static constexpr int WIDTH = 16 / sizeof(T);
  int channels, channel, begin, end, lanes, row, step;  // the thread's first channel and row, and the way to its next

  __device__ Chunk(int channels, int count, int size, int lanes)
      : channels(channels), channel((blockIdx.x * lanes + threadIdx.x % lanes) * WIDTH), begin(blockIdx.y * size),
        end(count - begin < size ? count : begin + size), lanes(lanes), row(begin + threadIdx.x / lanes),
        step(THREADS / lanes) {
    if (channel >= channels) row = end;
  }

  __device__ Index at(int row) const { return row * (Index)channels + channel; }
  __device__ Pack<T> read(const T* array, int row) const { return *(const Pack<T>*)(array + at(row)); }
  __device__ void write(T* array, int row, const Pack<T>& values) const { *(Pack<T>*)(array + at(row)) = values; }

  // The numbers of the thread's channels; `none` for each where there are no numbers.
  __device__ Own<T> own(const float* numbers, float none = 0.0f) const {
    Own<T> found;
    bool there = numbers && channel < channels, aligned = for_quads(numbers);  // an array of parameters may not be
#pragma unroll
    for (int k = 0; k < WIDTH; k += 4) {
      Quad quad = {none, none, none, none};
      if (there && aligned) quad = *(const Quad*)(numbers + channel + k);
#pragma unroll
      for (int i = 0; i < 4; i++) found.at[k + i] = there && !aligned ? numbers[channel + k + i] : quad.at[i];
    }
    return found;
  }

  // Add up numbers over the threads of the same channels, in a fixed order; the first row of threads gets the result.
  __device__ void add_up(float (&sums)[WIDTH]) const {
    __shared__ float of_warp[THREADS / WARP][MOST_LANES][WIDTH];
    for (int apart = WARP / 2; apart >= lanes; apart /= 2)
#pragma unroll
      for (int k = 0; k < WIDTH; k++) sums[k] += __shfl_xor_sync(~0u, sums[k], apart);
    __syncthreads();  // all have read what an earlier sum left
    if (threadIdx.x % WARP < lanes)
#pragma unroll
      for (int k = 0; k < WIDTH; k++) of_warp[threadIdx.x / WARP][threadIdx.x % WARP][k] = sums[k];
    __syncthreads();
    if (threadIdx.x < lanes)
#pragma unroll
      for (int k = 0; k < WIDTH; k++) {
        sums[k] = 0;
        for (int warp = 0; warp < THREADS / WARP; warp++) sums[k] += of_warp[warp][threadIdx.x][k];
      }
  }

  // Write the chunk's numbers (channels x chunks).
  __device__ void put(float* numbers, const float (&values)[WIDTH]) const {
    if (threadIdx.x >= lanes || channel >= channels) return;
#pragma unroll
    for (int k = 0; k < WIDTH; k++) numbers[(channel + k) * (Index)gridDim.y + blockIdx.y] = values[k];
  }
};

// HELD of a thread's rows of an array, from `row` on.
template <class T>
struct Held {
  Pack<T> at[HELD];
  __device__ Held(const Chunk<T>& chunk, const T* array, int row) {
#pragma unroll
    for (int i = 0; i < HELD; i++)
      if (array && row + i * chunk.step < chunk.end) at[i] = chunk.read(array, row + i * chunk.step);
  }
};

#define EACH_HELD(chunk, first) for (int first = chunk.row; first < chunk.end; first += HELD * chunk.step)
#define EACH_ROW(chunk, first, i, row) \
  _Pragma("unroll") for (int i = 0, row = first; i < HELD; i++, row += chunk.step) if (row < chunk.end)
#define EACH_NUMBER(T, k) _Pragma("unroll") for (int k = 0; k < Chunk<T>::WIDTH; k++)

template <class T>
struct Lines {
  Line at[Chunk<T>::WIDTH];
  __device__ Lines(const Chunk<T>& chunk, const float* mean, const float* inverse, const float* factor,
                   const float* bias) {
    Own<T> means = chunk.own(mean), inverses = chunk.own(inverse), factors = chunk.own(factor, 1.0f);
    Own<T> biases = chunk.own(bias);
    EACH_NUMBER(T, k) at[k] = {means.at[k], inverses.at[k] * factors.at[k], biases.at[k]};
  }
};

// The sums are those of the distances from the chunk's first row, which is near enough to the mean for the difference of
// squares: it is one of the values whose squares are summed.
template <class T>
__device__ void norm_chunks(const Chunk<T>& chunk, const T* x, T* kept, float* means, float* squares) {
  float sums[Chunk<T>::WIDTH] = {}, offs[Chunk<T>::WIDTH] = {};
  Pack<T> origin = {};
  if (chunk.row < chunk.end) origin = chunk.read(x, chunk.begin);
  EACH_HELD(chunk, first) {
    Held<T> values(chunk, x, first);
    EACH_ROW(chunk, first, i, row) {
      if (kept) chunk.write(kept, row, values.at[i]);
      EACH_NUMBER(T, k) {
        float distance = values.at[i].get(k) - origin.get(k);
        sums[k] += distance, offs[k] = fmaf(distance, distance, offs[k]);
      }
    }
  }
  chunk.add_up(sums), chunk.add_up(offs);
  float share = 1.0f / (chunk.end - chunk.begin);
  EACH_NUMBER(T, k) {
    float mean = sums[k] * share, off = fmaf(-sums[k], mean, offs[k]);
    sums[k] = origin.get(k) + mean, offs[k] = off < 0 ? 0.0f : off;
  }
  chunk.put(means, sums), chunk.put(squares, offs);
}

template <class T>
__device__ void normalise(const Chunk<T>& chunk, const T* x, const Lines<T>& lines, const T* other, T* y,
                          int rectified) {
  EACH_HELD(chunk, first) {
    Held<T> values(chunk, x, first), others(chunk, other, first);
    EACH_ROW(chunk, first, i, row) {
      Pack<T> results;
      EACH_NUMBER(T, k) {
        const Line& line = lines.at[k];
        float value = line.of(line.distance(values.at[i].get(k)));
        if (other) value += others.at[i].get(k);
        results.set(k, rectified ? rectify(value) : value);
      }
      chunk.write(y, row, results);
    }
  }
}

template <class T>
__device__ void norm_back_chunks(const Chunk<T>& chunk, const T* x, const T* dy, const Lines<T>& lines, float* sums,
                                 float* slopes, int rectified) {
  float of_sum[Chunk<T>::WIDTH] = {}, of_slope[Chunk<T>::WIDTH] = {};
  EACH_HELD(chunk, first) {
    Held<T> values(chunk, x, first), gradients(chunk, dy, first);
    EACH_ROW(chunk, first, i, row) EACH_NUMBER(T, k) {
      const Line& line = lines.at[k];
      float distance = line.distance(values.at[i].get(k)), gradient = gradients.at[i].get(k);
      if (rectified && !(line.of(distance) > 0)) gradient = 0;
      of_sum[k] += gradient, of_slope[k] = fmaf(gradient, distance, of_slope[k]);
    }
  }
  chunk.add_up(of_sum), chunk.add_up(of_slope);
  chunk.put(sums, of_sum), chunk.put(slopes, of_slope);
}

template <class T>
__device__ void normalise_back(const Chunk<T>& chunk, const T* x, const T* dy, const float* mean, const float* terms,
                               T* dx, int rectified, int bare) {
  Index channels = chunk.channels;
  Lines<T> lines(chunk, mean, terms, nullptr, terms + channels);
  Own<T> by = chunk.own(bare ? terms + 4 * channels : terms);
  Own<T> slopes = chunk.own(bare ? nullptr : terms + 2 * channels);
  Own<T> levels = chunk.own(bare ? nullptr : terms + 3 * channels);
  EACH_HELD(chunk, first) {
    Held<T> values(chunk, x, first), gradients(chunk, dy, first);
    EACH_ROW(chunk, first, i, row) {
      Pack<T> results;
      EACH_NUMBER(T, k) {
        const Line& line = lines.at[k];
        float distance = line.distance(values.at[i].get(k)), gradient = gradients.at[i].get(k);
        if (rectified && !(line.of(distance) > 0)) gradient = 0;
        results.set(k, fmaf(-distance, slopes.at[k], fmaf(gradient, by.at[k], -levels.at[k])));
      }
      chunk.write(dx, row, results);
    }
  }
}

template <class T>
__device__ void scale(const Chunk<T>& chunk, const T* x, const float* factor, const float* bias, T* kept, T* y) {
  Own<T> by = chunk.own(factor), plus = chunk.own(bias);
  EACH_HELD(chunk, first) {
    Held<T> values(chunk, x, first);
    EACH_ROW(chunk, first, i, row) {
      Pack<T> results;
      if (kept) chunk.write(kept, row, values.at[i]);
      EACH_NUMBER(T, k) results.set(k, fmaf(values.at[i].get(k), by.at[k], plus.at[k]));
      chunk.write(y, row, results);
    }
  }
}

template <class T>
__device__ void scale_back(const Chunk<T>& chunk, const T* x, const T* dy, const float* factor, T* dx, float* sums,
                           float* slopes) {
  Own<T> by = chunk.own(factor);
  float of_sum[Chunk<T>::WIDTH] = {}, of_slope[Chunk<T>::WIDTH] = {};
  EACH_HELD(chunk, first) {
    Held<T> values(chunk, x, first), gradients(chunk, dy, first);
    EACH_ROW(chunk, first, i, row) {
      Pack<T> results;
      EACH_NUMBER(T, k) {
        float gradient = gradients.at[i].get(k);
        of_sum[k] += gradient, of_slope[k] = fmaf(gradient, values.at[i].get(k), of_slope[k]);
        results.set(k, gradient * by.at[k]);
      }
      chunk.write(dx, row, results);
    }
  }
  chunk.add_up(of_sum), chunk.add_up(of_slope);
  chunk.put(sums, of_sum), chunk.put(slopes, of_slope);
}

#define CHANNELS int channels, int count, int size, int lanes
#define CHUNK(T) Chunk<T>(channels, count, size, lanes)
#define LAST(T, form)                                                                                                \
  READS_FIRST norm_chunks_##form(const T* x, T* kept, float* means, float* squares, CHANNELS) {                      \
    norm_chunks(CHUNK(T), x, kept, means, squares);                                                                  \
  }                                                                                                                  \
  READS_FIRST normalise_##form(const T* x, const float* mean, const float* inverse, const float* factor,             \
                          const float* bias, const T* other, T* y, CHANNELS, int rectified) {                        \
    auto chunk = CHUNK(T);                                                                                           \
    normalise(chunk, x, Lines<T>(chunk, mean, inverse, factor, bias), other, y, rectified);                          \
  }                                                                                                                  \
  READS_FIRST norm_back_chunks_##form(const T* x, const T* dy, const float* mean, const float* inverse,              \
                                      const float* factor, const float* bias, float* sums, float* slopes, CHANNELS,  \
                                      int rectified) {                                                               \
    auto chunk = CHUNK(T);                                                                                           \
    norm_back_chunks(chunk, x, dy, Lines<T>(chunk, mean, inverse, factor, bias), sums, slopes, rectified);           \
  }                                                                                                                  \
  READS_FIRST normalise_back_##form(const T* x, const T* dy, const float* mean, const float* terms, T* dx, CHANNELS, \
                               int rectified, int bare) {                                                            \
    normalise_back(CHUNK(T), x, dy, mean, terms, dx, rectified, bare);                                               \
  }                                                                                                                  \
  READS_FIRST scale_##form(const T* x, const float* factor, const float* bias, T* kept, T* y, CHANNELS) {            \
    scale(CHUNK(T), x, factor, bias, kept, y);                                                                       \
  }                                                                                                                  \
  READS_FIRST scale_back_##form(const T* x, const T* dy, const float* factor, T* dx, float* sums, float* slopes,     \
                           CHANNELS) {                                                                               \
    scale_back(CHUNK(T), x, dy, factor, dx, sums, slopes);                                                           \
  }

LAST(float, last)
LAST(bf16, last_bf16)
