// unfold: images (N x C x H x W) into columns (C kernel x N positions), one thread per entry of the columns.
// fold: gradients of columns into images, one thread per pixel, which adds its entries in a fixed order.
struct Side {
  int size, out, kernel, stride, pad, dilation;
  __device__ int pixel(int position, int place) const { return position * stride - pad + place * dilation; }
};

#define SIDES                                                                                           \
  int h, int oh, int kh, int sh, int ph, int dh, int w, int ow, int kw, int sw, int pw, int dw

KERNEL unfold(Index count, const float* images, float* matrix, int n, int channels, SIDES) {
  Side rows = {h, oh, kh, sh, ph, dh}, columns = {w, ow, kw, sw, pw, dw};
  EACH(i, count) {
    int c = i % ow, r = i / ow % oh, image = i / ow / oh % n;
    Index row = i / ow / oh / n;
    int b = columns.pixel(c, row % kw), a = rows.pixel(r, row / kw % kh);
    bool inside = a >= 0 && a < h && b >= 0 && b < w;
    matrix[i] = inside ? images[((image * (Index)channels + row / kw / kh) * h + a) * w + b] : 0.0f;
  }
}

KERNEL fold(Index count, const float* matrix, float* images, int n, int channels, SIDES) {
  EACH(i, count) {
    int b = i % w, a = i / w % h, channel = i / w / h % channels;
    Index image = i / w / h / channels;
    float sum = 0;
    for (int p = 0; p < kh; p++) {
      int r = a + ph - p * dh;
      if (r < 0 || r % sh || r / sh >= oh) continue;
      for (int q = 0; q < kw; q++) {
        int c = b + pw - q * dw;
        if (c < 0 || c % sw || c / sw >= ow) continue;
        Index row = ((Index)channel * kh + p) * kw + q;
        sum += matrix[((row * n + image) * oh + r / sh) * ow + c / sw];
      }
    }
    images[i] = sum;
  }
}
