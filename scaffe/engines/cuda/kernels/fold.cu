// Folding: pictures channels first (n x channels x h x w) into pictures channels last (n x high x wide x pitch) whose
// pixels are blocks of theirs, and the gradient of folded filters back; folding.py says what for.
#define BLOCKS int channels, int block_rows, int block_columns, int pitch

// Pixel (b, o) of a target has the block that begins at row b row_step - top and column o column_step - left, row by
// row, the channels of each pixel side by side; 0 outside the picture and behind the block. A thread writes N numbers.
template <class T, int N>
__device__ void fold(Index count, const float* x, T* y, int h, int w, int high, int wide, int row_step, int column_step,
                     int top, int left, BLOCKS, Divisor by_high, Divisor by_row, Divisor by_packs, Divisor by_channels,
                     Divisor by_columns) {
  int packs = pitch / N, used = channels * block_rows * block_columns;
  each_place(count, high, wide * packs, by_high, by_row, [&](Index i, Index picture, int b, int place) {
    int o = by_packs(place), first = (place - o * packs) * N;
    const float* source = x + picture * channels * h * w;
    Pack<T, N> result;
#pragma unroll
    for (int k = 0; k < N; k++) {
      int cell = by_channels(first + k), c = first + k - cell * channels, line = by_columns(cell);
      int row = b * row_step - top + line, column = o * column_step - left + cell - line * block_columns;
      bool inside = first + k < used && row >= 0 && row < h && column >= 0 && column < w;
      result.set(k, inside ? source[((Index)c * h + row) * w + column] : 0.0f);
    }
    ((Pack<T, N>*)y)[i] = result;
  });
}

// The gradient dw (filters x channels x h x w) of filters that lie folded in `source` (filters x high x wide x pitch),
// added to it or in its place.
template <class T>
__device__ void unfold(Index count, const T* source, float* dw, int h, int w, int high, int wide, int top, int left,
                       int add, BLOCKS, Divisor by_rows, Divisor by_columns) {
  each_place(count, h, w, by_rows, by_columns, [&](Index i, Index map, int row, int column) {
    Index filter = map / channels;
    int b = (row + top) / block_rows, o = (column + left) / block_columns;
    int cell = (row + top - b * block_rows) * block_columns + column + left - o * block_columns;
    Index place = ((filter * high + b) * wide + o) * pitch + cell * channels + (map - filter * channels);
    dw[i] = ::wide(source[place]) + (add ? dw[i] : 0.0f);
  });
}

#define FOLD(T, N, END)                                                                                                \
  KERNEL fold##END(Index count, const float* x, T* y, int h, int w, int high, int wide, int row_step, int column_step, \
                   int top, int left, BLOCKS, word by_high, word by_row, word by_packs, word by_channels,             \
                   word by_columns) {                                                                                  \
    fold<T, N>(count, x, y, h, w, high, wide, row_step, column_step, top, left, channels, block_rows, block_columns,   \
               pitch, by_high, by_row, by_packs, by_channels, by_columns);                                             \
  }                                                                                                                    \
  KERNEL unfold##END(Index count, const T* source, float* dw, int h, int w, int high, int wide, int top, int left,     \
                     int add, BLOCKS, word by_rows, word by_columns) {                                                 \
    unfold<T>(count, source, dw, h, w, high, wide, top, left, add, channels, block_rows, block_columns, pitch,         \
              by_rows, by_columns);                                                                                    \
  }
FOLD(float, 4, )
FOLD(bf16, 8, _bf16)
