// Concat, Slice and Split, up to eight blobs per launch. A whole is a matrix of `outer` rows, each a sequence of rows of
// its parts. Columns are units of 16, 4 or 2 bytes, whichever all rows consist of. Parts hold the columns from index
// `from` on; part k ends before column to<k>. Parts with a null pointer are left out.
#define PARTS(T) T *p0, T *p1, T *p2, T *p3, T *p4, T *p5, T *p6, T *p7
#define ENDS Index to0, Index to1, Index to2, Index to3, Index to4, Index to5, Index to6, Index to7
#define MOST 8

// Call move(part, j, i) for each of `count` units: unit j of a part is unit i of the whole.
template <class Place, class Move>
__device__ void over_parts(Index count, Index pitch, Index from, Index columns, word by_columns, const Place* parts,
                           const Index* ends, Move move) {
  each_cell(count, columns, by_columns, [&](Index row, Index column) {
    Place part = parts[0];
    Index at = from + column, begin = from, end = ends[0];
#pragma unroll
    for (int k = 1; k < MOST; k++)
      if (at >= ends[k - 1]) part = parts[k], begin = ends[k - 1], end = ends[k];
    if (part) move(part, row * (end - begin) + at - begin, row * pitch + at);
  });
}

template <class Unit>
__device__ void gather(Index count, void* whole, Index pitch, Index from, Index columns, word by_columns,
                       PARTS(const void), ENDS) {
  const void* parts[] = {p0, p1, p2, p3, p4, p5, p6, p7};
  Index ends[] = {to0, to1, to2, to3, to4, to5, to6, to7};
  over_parts(count, pitch, from, columns, by_columns, parts, ends,
             [&](const void* part, Index j, Index i) { ((Unit*)whole)[i] = ((const Unit*)part)[j]; });
}

template <class Unit>
__device__ void scatter(Index count, const void* whole, Index pitch, Index from, Index columns, word by_columns,
                        PARTS(void), ENDS) {
  void* parts[] = {p0, p1, p2, p3, p4, p5, p6, p7};
  Index ends[] = {to0, to1, to2, to3, to4, to5, to6, to7};
  over_parts(count, pitch, from, columns, by_columns, parts, ends,
             [&](void* part, Index j, Index i) { ((Unit*)part)[j] = ((const Unit*)whole)[i]; });
}

#define OF_PARTS p0, p1, p2, p3, p4, p5, p6, p7, to0, to1, to2, to3, to4, to5, to6, to7
#define MOVE(Unit, nbytes)                                                                                            \
  KERNEL gather_##nbytes(Index count, void* whole, Index pitch, Index from, Index columns, word by_columns,          \
                         PARTS(const void), ENDS) {                                                                  \
    gather<Unit>(count, whole, pitch, from, columns, by_columns, OF_PARTS);                                          \
  }                                                                                                                  \
  KERNEL scatter_##nbytes(Index count, const void* whole, Index pitch, Index from, Index columns, word by_columns,   \
                          PARTS(void), ENDS) {                                                                       \
    scatter<Unit>(count, whole, pitch, from, columns, by_columns, OF_PARTS);                                         \
  }

MOVE(Quad, 16)
MOVE(unsigned, 4)
MOVE(unsigned short, 2)

// total = p0 + p1 + ..., from the left.
template <class T>
__device__ void sum_up(Index count, T* total, PARTS(const T)) {
  const T* parts[] = {p0, p1, p2, p3, p4, p5, p6, p7};
  bool aligned = for_quads(total);
#pragma unroll
  for (int k = 0; k < MOST; k++) aligned = aligned && for_quads(parts[k]);
  Packs<T> packs = {count, aligned};
  EACH(q, packs.size()) {
    Pack<T> first = packs.read(p0, q);
    float sum[Packs<T>::MANY];
#pragma unroll
    for (int k = 0; k < Packs<T>::MANY; k++) sum[k] = first.get(k);
#pragma unroll
    for (int part = 1; part < MOST; part++)
      if (parts[part]) {
        Pack<T> values = packs.read(parts[part], q);
#pragma unroll
        for (int k = 0; k < Packs<T>::MANY; k++) sum[k] += values.get(k);
      }
#pragma unroll
    for (int k = 0; k < Packs<T>::MANY; k++) first.set(k, sum[k]);
    packs.write(total, q, first);
  }
}

KERNEL sum_of(Index count, float* total, PARTS(const float)) { sum_up(count, total, p0, p1, p2, p3, p4, p5, p6, p7); }
KERNEL sum_of_bf16(Index count, bf16* total, PARTS(const bf16)) { sum_up(count, total, p0, p1, p2, p3, p4, p5, p6, p7); }
