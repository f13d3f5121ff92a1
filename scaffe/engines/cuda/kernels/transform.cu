// Images as read, converted to the input of a net: cropped, mirrored, y = (x - mean) * scale, rounded as on the host.
typedef unsigned char byte;

// Copy a window of each of `planes` / `channels` images x (channels x rows x columns) into y (channels x height x
// width). `places` holds for each image the window's top row, its left column, and 1 to mirror it. `mean` is an image
// (channels x rows x columns), `means` one number per channel; either may be null.
template <class Pixel>
__device__ void transform(const Pixel* x, const int* places, const float* mean, const float* means, float* y,
                          int planes, int channels, int rows, int columns, int height, int width, float scale) {
  for (int plane = blockIdx.y; plane < planes; plane += gridDim.y) {
    const int* place = places + plane / channels * (Index)3;
    int top = place[0], left = place[1], channel = plane % channels;
    bool mirrored = place[2];
    const Pixel* image = x + plane * (Index)rows * columns;
    const float* under = mean ? mean + channel * (Index)rows * columns : 0;
    float all = means ? means[channel] : 0.0f;
    float* target = y + plane * (Index)height * width;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < height * width; i += gridDim.x * blockDim.x) {
      int row = i / width, column = i % width;
      int from = (top + row) * columns + left + (mirrored ? width - 1 - column : column);
      target[i] = ((float)image[from] - (under ? under[from] : all)) * scale;
    }
  }
}

KERNEL transform_uint8(const byte* x, const int* places, const float* mean, const float* means, float* y, int planes,
                       int channels, int rows, int columns, int height, int width, float scale) {
  transform(x, places, mean, means, y, planes, channels, rows, columns, height, width, scale);
}

KERNEL transform_float32(const float* x, const int* places, const float* mean, const float* means, float* y, int planes,
                         int channels, int rows, int columns, int height, int width, float scale) {
  transform(x, places, mean, means, y, planes, channels, rows, columns, height, width, scale);
}
