// Concat, Slice and Split, up to eight blobs per launch: a whole (outer x size x inner) and its parts, consecutive on
// the axis of `size` from index `from` on. Part k ends before index to<k>. Parts with a null pointer are left out.
#define PARTS(T) T *p0, T *p1, T *p2, T *p3, T *p4, T *p5, T *p6, T *p7
#define ENDS int to0, int to1, int to2, int to3, int to4, int to5, int to6, int to7

// Call move(part, j, i) for each of the parts' `count` elements: element j of a part is element i of the whole.
template <class T, class Move>
__device__ void over_parts(Index count, int size, int inner, int from, T* const* parts, const int* ends, int last,
                           Move move) {
  EACH(n, count) {
    Index k = n % inner, at = from + n / inner % (last - from), o = n / inner / (last - from);
    int q = 0, start = from;
    while (at >= ends[q]) start = ends[q++];
    if (parts[q]) move(parts[q], (o * (ends[q] - start) + at - start) * inner + k, (o * size + at) * inner + k);
  }
}

struct Gather {
  float* whole;
  __device__ void operator()(const float* part, Index j, Index i) const { whole[i] = part[j]; }
};
struct Scatter {
  const float* whole;
  __device__ void operator()(float* part, Index j, Index i) const { part[j] = whole[i]; }
};

KERNEL gather(Index count, float* whole, int size, int inner, int from, int last, PARTS(const float), ENDS) {
  const float* parts[] = {p0, p1, p2, p3, p4, p5, p6, p7};
  int ends[] = {to0, to1, to2, to3, to4, to5, to6, to7};
  Gather move = {whole};
  over_parts(count, size, inner, from, parts, ends, last, move);
}

KERNEL scatter(Index count, const float* whole, int size, int inner, int from, int last, PARTS(float), ENDS) {
  float* parts[] = {p0, p1, p2, p3, p4, p5, p6, p7};
  int ends[] = {to0, to1, to2, to3, to4, to5, to6, to7};
  Scatter move = {whole};
  over_parts(count, size, inner, from, parts, ends, last, move);
}

// total = p0 + p1 + ..., from the left.
KERNEL sum_of(Index count, float* total, PARTS(const float)) {
  const float* parts[] = {p0, p1, p2, p3, p4, p5, p6, p7};
  EACH(i, count) {
    float sum = p0[i];
    for (int k = 1; k < 8 && parts[k]; k++) sum += parts[k][i];
    total[i] = sum;
  }
}
