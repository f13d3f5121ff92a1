// Transposition of matrices (rows x columns) of float or bfloat16, and sums of the channels of maps (images x channels
// x positions).
#define TILE 32

// A block transposes one tile of one of the matrices. The bias of the target's row is added, if there is a bias, and
// with `add` the target's old value.
template <class From, class To>
__device__ void turn(const From* source, To* target, const float* bias, int rows, int columns, int add) {
  __shared__ float tile[TILE][TILE + 1];  // one more column: a column of the tile then lies in 32 banks
  int across = (columns + TILE - 1) / TILE, tiles = (rows + TILE - 1) / TILE * across;
  int r = blockIdx.x % tiles / across * TILE, c = blockIdx.x % across * TILE, x = threadIdx.x % TILE;
  Index start = (Index)(blockIdx.x / tiles) * rows * columns;
  for (int y = threadIdx.x / TILE; y < TILE; y += THREADS / TILE)
    if (r + y < rows && c + x < columns) tile[y][x] = wide(source[start + (Index)(r + y) * columns + c + x]);
  __syncthreads();
  for (int y = threadIdx.x / TILE; y < TILE; y += THREADS / TILE)
    if (c + y < columns && r + x < rows) {
      To* place = target + start + (Index)(c + y) * rows + r + x;
      store(place, tile[x][y] + (bias ? bias[c + y] : 0.0f) + (add ? wide(*place) : 0.0f));
    }
}

// The same for narrow matrices, which would leave most of a tile empty: one thread per element.
template <class From, class To>
__device__ void turn_narrow(Index count, const From* source, To* target, const float* bias, int rows, int columns,
                            int add) {
  EACH(i, count) {
    Index matrix = i / rows / columns;
    int c = i / rows % columns, r = i % rows;
    float value = wide(source[(matrix * rows + r) * columns + c]);
    store(target + i, value + (bias ? bias[c] : 0.0f) + (add ? wide(target[i]) : 0.0f));
  }
}

KERNEL turn_float(const float* source, float* target, const float* bias, int rows, int columns, int add) {
  turn(source, target, bias, rows, columns, add);
}
KERNEL turn_to_bf16(const float* source, bf16* target, const float* bias, int rows, int columns, int add) {
  turn(source, target, bias, rows, columns, add);
}
KERNEL turn_from_bf16(const bf16* source, float* target, const float* bias, int rows, int columns, int add) {
  turn(source, target, bias, rows, columns, add);
}
KERNEL turn_bf16(const bf16* source, bf16* target, const float* bias, int rows, int columns, int add) {
  turn(source, target, bias, rows, columns, add);
}
KERNEL turn_narrow_bf16(Index count, const bf16* source, bf16* target, const float* bias, int rows, int columns,
                        int add) {
  turn_narrow(count, source, target, bias, rows, columns, add);
}
KERNEL turn_narrow_float(Index count, const float* source, float* target, const float* bias, int rows, int columns,
                         int add) {
  turn_narrow(count, source, target, bias, rows, columns, add);
}
KERNEL turn_narrow_to_bf16(Index count, const float* source, bf16* target, const float* bias, int rows, int columns,
                           int add) {
  turn_narrow(count, source, target, bias, rows, columns, add);
}
KERNEL turn_narrow_from_bf16(Index count, const bf16* source, float* target, const float* bias, int rows, int columns,
                             int add) {
  turn_narrow(count, source, target, bias, rows, columns, add);
}

// One block per channel and part of the images.
KERNEL channel_sums(const float* maps, float* sums, int images, int channels, int positions) {
  Index first = (Index)images * blockIdx.y / gridDim.y, last = (Index)images * (blockIdx.y + 1) / gridDim.y;
  float sum = 0;
  for (Index k = threadIdx.x; k < (last - first) * positions; k += blockDim.x)
    sum += maps[((first + k / positions) * channels + blockIdx.x) * positions + k % positions];
  sum = over_block<Sum>(sum);
  if (threadIdx.x == 0) sums[(Index)blockIdx.y * channels + blockIdx.x] = sum;
}

KERNEL add_parts(Index count, const float* sums, float* total, int parts) {
  EACH(c, count) {
    float sum = 0;
    for (int part = 0; part < parts; part++) sum += sums[part * count + c];
    total[c] += sum;
  }
}
