// Transposition of matrices (rows x columns) of float or bfloat16.
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
                            int add, word by_rows, word by_columns) {
  each_place(count, columns, rows, by_columns, by_rows, [&](Index i, Index matrix, int c, int r) {
    float value = wide(source[(matrix * rows + r) * columns + c]);
    store(target + i, value + (bias ? bias[c] : 0.0f) + (add ? wide(target[i]) : 0.0f));
  });
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
                        int add, word by_rows, word by_columns) {
  turn_narrow(count, source, target, bias, rows, columns, add, by_rows, by_columns);
}
KERNEL turn_narrow_float(Index count, const float* source, float* target, const float* bias, int rows, int columns,
                         int add, word by_rows, word by_columns) {
  turn_narrow(count, source, target, bias, rows, columns, add, by_rows, by_columns);
}
KERNEL turn_narrow_to_bf16(Index count, const float* source, bf16* target, const float* bias, int rows, int columns,
                           int add, word by_rows, word by_columns) {
  turn_narrow(count, source, target, bias, rows, columns, add, by_rows, by_columns);
}
KERNEL turn_narrow_from_bf16(Index count, const bf16* source, float* target, const float* bias, int rows, int columns,
                             int add, word by_rows, word by_columns) {
  turn_narrow(count, source, target, bias, rows, columns, add, by_rows, by_columns);
}
