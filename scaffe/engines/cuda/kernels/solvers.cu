// The solvers' updates, one launch for all parameters: block b computes the elements begins[b] to ends[b] of the packed
// arrays, at most PIECE, which belong to parameter owners[b]. Each operation rounds, as in the reference rules: the
// results are the same bits, except that denormals become 0 (CuPy's last compiler option is -ftz=true). A rule
// with `leaves_update` writes the update into diff, as Caffe does; that of SGD is its history.
struct Given {
  float *data, *diff, *first, *second;
  const Index *begins, *ends;
  const double *rates, *decays, *ratios;
  const int* owners;
  double* faulty;
};

struct Numbers {
  double rate, scale;
  float normalise, momentum, momentum2, delta;
  int l1;
};

struct SGD {
  static const bool leaves_update = false;  // the update is the history
  static __device__ float step(float g, float& v, float& w, float rate, const Numbers& n) {
    v = n.momentum * v + rate * g;
    return v;
  }
};

struct Nesterov {
  static const bool leaves_update = true;
  static __device__ float step(float g, float& v, float& w, float rate, const Numbers& n) {
    float back = v * -n.momentum;
    v = n.momentum * v + rate * g;
    return v * (1.0f + n.momentum) + back;
  }
};

struct AdaGrad {
  static const bool leaves_update = true;
  static __device__ float step(float g, float& v, float& w, float rate, const Numbers& n) {
    v += g * g;
    return g / (sqrtf(v) + n.delta) * rate;
  }
};

__device__ inline float blend(float history, float keep, float value) { return history * keep + value * (1.0f - keep); }

struct RMSProp {
  static const bool leaves_update = true;
  static __device__ float step(float g, float& v, float& w, float rate, const Numbers& n) {
    v = blend(v, n.momentum2, g * g);
    return g / (sqrtf(v) + n.delta) * rate;
  }
};

struct AdaDelta {
  static const bool leaves_update = true;
  static __device__ float step(float g, float& v, float& w, float rate, const Numbers& n) {
    v = blend(v, n.momentum, g * g);
    float update = g * sqrtf((w + n.delta) / (v + n.delta));
    w = blend(w, n.momentum, update * update);
    return update * rate;
  }
};

struct Adam {
  static const bool leaves_update = true;
  static __device__ float step(float g, float& v, float& w, float rate, const Numbers& n) {
    w = blend(w, n.momentum2, g * g);
    v = blend(v, n.momentum, g);
    return v / (sqrtf(w) + n.delta) * rate;
  }
};

// Access to elements j to j + 3 of an array, of those that belong to this block.
struct Span {
  Index begin, end;
  bool aligned;
  __device__ bool whole(Index j) const { return aligned && j >= begin && j + 4 <= end; }
  __device__ Quad read(const float* array, Index j) const {
    if (whole(j)) return *(const Quad*)(array + j);
    Quad some = {};
    for (int k = 0; k < 4; k++)
      if (j + k >= begin && j + k < end) some.at[k] = array[j + k];
    return some;
  }
  __device__ void write(float* array, Index j, const Quad& values) const {
    if (whole(j)) *(Quad*)(array + j) = values;
    else
      for (int k = 0; k < 4; k++)
        if (j + k >= begin && j + k < end) array[j + k] = values.at[k];
  }
};

__device__ inline bool is_finite(float value) { return value - value == 0; }

// Store 1 + the index of a parameter that is not finite, if no other is stored.
__device__ inline void tell(double* faulty, int i) {
  if (*faulty == 0) *faulty = i + 1;
}

template <class Rule>
__device__ void update(const Given& at, const Numbers& n) {
  int i = at.owners[blockIdx.x];
  double own = n.rate * at.rates[i] * n.scale;
  float rate = (float)(at.ratios ? own * at.ratios[i] : own), decay = (float)at.decays[i];
  Span span = {at.begins[blockIdx.x], at.ends[blockIdx.x],
               for_quads(at.data) && for_quads(at.diff) && for_quads(at.first) && for_quads(at.second)};
  bool fine = true;
  for (Index j = span.begin / 4 * 4 + 4 * threadIdx.x; j < span.end; j += 4 * blockDim.x) {
    Quad x = span.read(at.data, j), g = span.read(at.diff, j), v = span.read(at.first, j), w = {};
    if (at.second) w = span.read(at.second, j);
    for (int k = 0; k < 4; k++) {
      float gradient = g.at[k] * n.normalise;
      if (decay != 0) gradient += (n.l1 ? (float)((x.at[k] > 0) - (x.at[k] < 0)) : x.at[k]) * decay;
      g.at[k] = Rule::step(gradient, v.at[k], w.at[k], rate, n);
      x.at[k] -= g.at[k];
      fine &= is_finite(x.at[k]) & is_finite(v.at[k]) & is_finite(w.at[k]);
    }
    span.write(at.first, j, v);
    if (at.second) span.write(at.second, j, w);
    if (Rule::leaves_update) span.write(at.diff, j, g);
    span.write(at.data, j, x);
  }
  if (!fine) tell(at.faulty, i);
}

// The histories begin `ahead` elements after the packed arrays: they hold what this rank owns alone.
#define UPDATE(Rule)                                                                                                  \
  KERNEL update_##Rule(float* data, float* diff, float* first, float* second, Index ahead, const Index* begins,       \
                       const Index* ends, const double* rates, const double* decays, const double* ratios,            \
                       const int* owners, double* faulty, double rate, double scale, float normalise, float momentum, \
                       float momentum2, float delta, int l1) {                                                        \
    Given at = {data, diff, first - ahead, second ? second - ahead : second, begins, ends, rates, decays, ratios,     \
                owners, faulty};                                                                                      \
    Numbers n = {rate, scale, normalise, momentum, momentum2, delta, l1};                                            \
    update<Rule>(at, n);                                                                                             \
  }

UPDATE(SGD)
UPDATE(Nesterov)
UPDATE(AdaGrad)
UPDATE(RMSProp)
UPDATE(AdaDelta)
UPDATE(Adam)

// Check that the pieces of parameters are finite.
KERNEL look(const float* data, const Index* begins, const Index* ends, const int* owners, double* faulty) {
  bool fine = true;
  for (Index j = begins[blockIdx.x] + threadIdx.x; j < ends[blockIdx.x]; j += blockDim.x)
    fine = fine && is_finite(data[j]);
  if (!fine) tell(faulty, owners[blockIdx.x]);
}

// LARS: the sums of squares of a block's elements; then the factor of each parameter's rate, trust |data| / (|diff| +
// decay |data|). Block b of lars_ratios computes parameter wanted[b], whose pieces are firsts[b] to firsts[b + 1] - 1.
KERNEL lars_squares(const float* data, const float* diff, const Index* begins, const Index* ends, double* of_data,
                    double* of_diff) {
  double x2 = 0, g2 = 0;
  for (Index j = begins[blockIdx.x] + threadIdx.x; j < ends[blockIdx.x]; j += blockDim.x) {
    x2 += (double)data[j] * data[j];
    g2 += (double)diff[j] * diff[j];
  }
  x2 = over_block<Sum>(x2), g2 = over_block<Sum>(g2);
  if (threadIdx.x == 0) of_data[blockIdx.x] = x2, of_diff[blockIdx.x] = g2;
}

KERNEL lars_ratios(const double* of_data, const double* of_diff, const int* wanted, const int* firsts,
                   const double* decays, double* ratios, float normalise, double trust) {
  int i = wanted[blockIdx.x];
  double x2 = 0, g2 = 0;
  for (int k = firsts[blockIdx.x] + threadIdx.x; k < firsts[blockIdx.x + 1]; k += blockDim.x)
    x2 += of_data[k], g2 += of_diff[k];
  double x = sqrt(over_block<Sum>(x2)), g = sqrt(over_block<Sum>(g2)) * normalise;
  if (threadIdx.x == 0) ratios[i] = trust * (x != 0 && g != 0 ? x / (g + decays[i] * x) : 1.0);
}

// Sums of squares, one per block.
KERNEL squares(Index count, const float* diff, double* sums) {
  double sum = 0;
  EACH(i, count) sum += (double)diff[i] * diff[i];
  sum = over_block<Sum>(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// The factor by which to multiply values with this sum of squares, so that their norm is at most `limit`.
KERNEL clip_factor(const double* sums, int parts, double limit, float* factor) {
  double sum = 0;
  for (int k = threadIdx.x; k < parts; k += blockDim.x) sum += sums[k];
  double norm = sqrt(over_block<Sum>(sum));
  if (threadIdx.x == 0) *factor = norm > limit ? (float)(limit / norm) : 1.0f;
}

KERNEL clip(Index count, float* diff, const float* factor) {
  float by = *factor;
  if (by != 1) EACH(i, count) diff[i] *= by;
}
