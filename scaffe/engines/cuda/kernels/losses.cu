// Losses and accuracies of scores (outer x classes x inner) against labels (outer x inner), integers stored as floats.
// report: [0] the loss; of the first label found that is no class, [1] the number of its layer (0: none), [2] its row,
// [3] its value.
struct Least {
  static __device__ Index join(Index a, Index b) { return a < b ? a : b; }
};

__device__ inline bool is_class(float label, int classes) {
  return label >= 0 && label < classes && label == floorf(label);
}

KERNEL check_labels(Index count, const float* labels, Index per_row, int classes, int ignores, float ignore, int layer,
                    double* report) {
  Index first = count;
  for (Index i = threadIdx.x; i < count && first == count; i += blockDim.x)
    if (!is_class(labels[i], classes) && !(ignores && labels[i] == ignore)) first = i;
  first = over_block<Least>(first);
  if (threadIdx.x == 0 && first < count && report[1] == 0)
    report[1] = layer, report[2] = first / per_row, report[3] = labels[first];
}

KERNEL add_loss(const float* top, Index count, double weight, int first, double* report) {
  double sum = 0;
  for (Index i = threadIdx.x; i < count; i += blockDim.x) sum += top[i];
  sum = over_block<Sum>(sum);
  if (threadIdx.x == 0) report[0] = (first ? 0 : report[0]) + weight * sum;
}

// One block per row. A label that is no class counts as class 0 here: check_labels reports it.
KERNEL softmax_loss(const float* scores, const float* labels, float* prob, float* losses, int classes, int inner,
                    int ignores, float ignore) {
  Index base = blockIdx.x / inner * (Index)classes * inner + blockIdx.x % inner;
  float label = labels[blockIdx.x], tiny = 1.17549435e-38f;
  softmax_over_block(scores, prob, base, classes, inner);
  __syncthreads();
  if (threadIdx.x == 0) {
    float hit = prob[base + (is_class(label, classes) ? (Index)label : 0) * inner];
    losses[blockIdx.x] = ignores && label == ignore ? 0.0f : -logf(hit < tiny ? tiny : hit);
  }
}

// top = sum of values / divisor. A divisor of 0 stands for the number of labels not ignored, at least 1.
KERNEL mean_over_labels(const float* values, const float* labels, Index count, int ignores, float ignore,
                        double divisor, float* top, float* divided) {
  float sum = 0;
  double kept = 0;
  for (Index i = threadIdx.x; i < count; i += blockDim.x) {
    sum += values[i];
    kept += ignores && labels[i] == ignore ? 0 : 1;
  }
  sum = over_block<Sum>(sum);
  kept = over_block<Sum>(kept);
  if (threadIdx.x == 0) {
    *divided = (float)(divisor != 0 ? divisor : kept > 1 ? kept : 1);
    *top = sum / *divided;
  }
}

// The gradient of the sum of -log(prob[label]) over the labels not ignored, times *weight / *divided.
KERNEL softmax_loss_back(Index count, const float* prob, const float* labels, float* dx, int classes, int inner,
                         word by_classes, word by_inner, int ignores, float ignore, const float* weight,
                         const float* divided) {
  float factor = *weight / *divided;
  each_place(count, classes, inner, by_classes, by_inner, [&](Index i, Index row, int c, int k) {
    float label = labels[row * inner + k];
    dx[i] = ignores && label == ignore ? 0.0f : (prob[i] - (label == c ? 1.0f : 0.0f)) * factor;
  });
}

// hit = 1 where the label's score is among the top_k best; one block per row. The scores not below the label's include
// the label's own.
KERNEL hits(const float* scores, const float* labels, float* hit, int classes, int inner, int top_k, int ignores,
            float ignore) {
  Index base = blockIdx.x / inner * (Index)classes * inner + blockIdx.x % inner, not_worse = 0;
  float label = labels[blockIdx.x];
  float own = scores[base + (is_class(label, classes) ? (Index)label : 0) * inner];
  for (int c = threadIdx.x; c < classes; c += blockDim.x) not_worse += !(scores[base + c * (Index)inner] < own);
  not_worse = over_block<Sum>(not_worse);
  if (threadIdx.x == 0) hit[blockIdx.x] = not_worse <= top_k && !(ignores && label == ignore) ? 1.0f : 0.0f;
}
