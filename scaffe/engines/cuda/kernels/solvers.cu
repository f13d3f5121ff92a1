// The solvers' updates, one launch for all parameters: column y of the grid has parameter wanted[y], its elements from
// starts to stops of the packed arrays. Rounded after each operation, as the reference rules are: the same bits.
struct Given {
  float *data, *diff, *first, *second;
  const Index *starts, *stops;
  const double *rates, *decays, *ratios;
  const int* wanted;
};

struct Numbers {
  double rate, scale;
  float normalise, momentum, momentum2, delta;
  int l1;
};

struct SGD {
  static __device__ float step(float g, float& v, float& w, float rate, const Numbers& n) {
    v = n.momentum * v + rate * g;
    return v;
  }
};

struct Nesterov {
  static __device__ float step(float g, float& v, float& w, float rate, const Numbers& n) {
    float back = v * -n.momentum;
    v = n.momentum * v + rate * g;
    return v * (1.0f + n.momentum) + back;
  }
};

struct AdaGrad {
  static __device__ float step(float g, float& v, float& w, float rate, const Numbers& n) {
    v += g * g;
    return g / (sqrtf(v) + n.delta) * rate;
  }
};

__device__ inline float blend(float history, float keep, float value) { return history * keep + value * (1.0f - keep); }

struct RMSProp {
  static __device__ float step(float g, float& v, float& w, float rate, const Numbers& n) {
    v = blend(v, n.momentum2, g * g);
    return g / (sqrtf(v) + n.delta) * rate;
  }
};

struct AdaDelta {
  static __device__ float step(float g, float& v, float& w, float rate, const Numbers& n) {
    v = blend(v, n.momentum, g * g);
    float update = g * sqrtf((w + n.delta) / (v + n.delta));
    w = blend(w, n.momentum, update * update);
    return update * rate;
  }
};

struct Adam {
  static __device__ float step(float g, float& v, float& w, float rate, const Numbers& n) {
    w = blend(w, n.momentum2, g * g);
    v = blend(v, n.momentum, g);
    return v / (sqrtf(w) + n.delta) * rate;
  }
};

template <class Rule>
__device__ void update(const Given& at, const Numbers& n) {
  int i = at.wanted[blockIdx.y];
  double own = n.rate * at.rates[i] * n.scale;
  float rate = (float)(at.ratios ? own * at.ratios[i] : own), decay = (float)at.decays[i], none = 0;
  Index count = at.stops[i] - at.starts[i];
  EACH(k, count) {
    Index j = at.starts[i] + k;
    float x = at.data[j], g = at.diff[j] * n.normalise;
    if (decay != 0) g += (n.l1 ? (float)((x > 0) - (x < 0)) : x) * decay;
    float v = at.first[j], w = at.second ? at.second[j] : none;
    float step = Rule::step(g, v, w, rate, n);
    at.first[j] = v;
    if (at.second) at.second[j] = w;
    at.diff[j] = step;
    at.data[j] = x - step;
  }
}

#define UPDATE(Rule)                                                                                                  \
  KERNEL update_##Rule(float* data, float* diff, float* first, float* second, const Index* starts,                   \
                       const Index* stops, const double* rates, const double* decays, const double* ratios,          \
                       const int* wanted, double rate, double scale, float normalise, float momentum,                \
                       float momentum2, float delta, int l1) {                                                        \
    Given at = {data, diff, first, second, starts, stops, rates, decays, ratios, wanted};                            \
    Numbers n = {rate, scale, normalise, momentum, momentum2, delta, l1};                                            \
    update<Rule>(at, n);                                                                                             \
  }

UPDATE(SGD)
UPDATE(Nesterov)
UPDATE(AdaGrad)
UPDATE(RMSProp)
UPDATE(AdaDelta)
UPDATE(Adam)

// LARS: a block for each parameter writes by how much its rate grows, |data| / (|diff| + decay |data|).
KERNEL lars_ratios(const float* data, const float* diff, const Index* starts, const Index* stops, const double* decays,
                   const int* wanted, double* ratios, float normalise, double trust) {
  int i = wanted[blockIdx.x];
  float x2 = 0, g2 = 0;
  for (Index j = starts[i] + threadIdx.x; j < stops[i]; j += blockDim.x) {
    x2 += data[j] * data[j];
    g2 += diff[j] * diff[j];
  }
  double x = sqrt((double)over_block<Sum>(x2)), g = sqrt((double)over_block<Sum>(g2)) * normalise;
  if (threadIdx.x == 0) ratios[i] = trust * (x != 0 && g != 0 ? x / (g + decays[i] * x) : 1.0);
}

// Sums of squares, one for each of the grid's blocks.
KERNEL squares(Index count, const float* diff, double* sums) {
  double sum = 0;
  EACH(i, count) sum += (double)diff[i] * diff[i];
  sum = over_block<Sum>(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// By what to multiply values of which that is the sum of squares, so that their norm is at most `limit`.
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
