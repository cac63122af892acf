// Products of tiles that lie in the caches, for kernels that multiply on their way (`codegen/streamed.py`).
// It stands after `prelude.h`, and only in files with such a kernel.
// In PyTorch: aten/src/ATen/native/cpu/FlashAttentionKernel.cpp calls BLAS for these (`cpublas::gemm`).

// A register full of floats, and a product of registers that is added to a third.
#ifdef __AVX512F__
#define WIDTH 16
#else
#define WIDTH 8
#endif
typedef float vector __attribute__((vector_size(4 * WIDTH)));
typedef float vector_anywhere __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
#if defined(__clang__)
#define MULTIPLY_ADD(a, b, c) __builtin_elementwise_fma(a, b, c)
#elif defined(__AVX512F__)
#define MULTIPLY_ADD(a, b, c) __builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4)
#elif defined(__FMA__)
#define MULTIPLY_ADD(a, b, c) __builtin_ia32_vfmaddps256(a, b, c)
#else
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#endif

// The part of a product that fits in registers: R rows, V vectors of columns. a(r, k) lies at a[r * row + k * step].
template <int R, int V>
static INLINE void multiply_in_registers(const float* a, int64_t row, int64_t step, const float* b, int64_t b_row,
                                         float* c, int64_t c_row, int64_t depth, bool add) {
  vector sum[R][V];
  for (int r = 0; r < R; r++)
    for (int v = 0; v < V; v++) sum[r][v] = add ? *(vector_anywhere*)(c + r * c_row + v * WIDTH) : vector{};

  for (int64_t k = 0; k < depth; k++, a += step, b += b_row) {
    vector right[V];
    for (int v = 0; v < V; v++) right[v] = *(const vector_anywhere*)(b + v * WIDTH);
    for (int r = 0; r < R; r++) {
      vector left = a[r * row] - vector{};
      for (int v = 0; v < V; v++) sum[r][v] = MULTIPLY_ADD(left, right[v], sum[r][v]);
    }
  }

  for (int r = 0; r < R; r++)
    for (int v = 0; v < V; v++) *(vector_anywhere*)(c + r * c_row + v * WIDTH) = sum[r][v];
}

// All rows of V vectors of columns: six rows at a time, then one by one.
template <int V>
static void multiply_columns(const float* a, int64_t row, int64_t step, const float* b, int64_t b_row, float* c,
                             int64_t c_row, int64_t rows, int64_t depth, bool add) {
  int64_t i = 0;
  for (; i + 6 <= rows; i += 6)
    multiply_in_registers<6, V>(a + i * row, row, step, b, b_row, c + i * c_row, c_row, depth, add);
  for (; i < rows; i++)
    multiply_in_registers<1, V>(a + i * row, row, step, b, b_row, c + i * c_row, c_row, depth, add);
}

// c = a @ b, or c += a @ b. Rows of b and c lie densely, and `columns` is a multiple of 16.
static void multiply(const float* a, int64_t row, int64_t step, const float* b, int64_t b_row, float* c, int64_t c_row,
                     int64_t rows, int64_t columns, int64_t depth, bool add) {
  const int V = WIDTH == 16 ? 4 : 2;  // as many as the registers can hold for six rows
  int64_t j = 0;
  for (; j + V * WIDTH <= columns; j += V * WIDTH)
    multiply_columns<V>(a, row, step, b + j, b_row, c + j, c_row, rows, depth, add);
  for (; j < columns; j += WIDTH) multiply_columns<1>(a, row, step, b + j, b_row, c + j, c_row, rows, depth, add);
}

// --- tiles of float32, from memory in any layout and dtype

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define HAS_SHUFFLES
#endif
#endif
#ifdef HAS_SHUFFLES
typedef float four __attribute__((vector_size(16)));
typedef float four_anywhere __attribute__((vector_size(16), aligned(4), may_alias));
template <class T> static INLINE four four_of(const T* from) {
  return four{(float)from[0], (float)from[1], (float)from[2], (float)from[3]};
}
static INLINE four four_of(const float* from) { return *(const four_anywhere*)from; }

// Four rows of four become four columns.
template <class T> static INLINE void transpose_four(float* to, int64_t to_row, const T* from, int64_t from_row) {
  four a = four_of(from), b = four_of(from + from_row), c = four_of(from + 2 * from_row), d = four_of(from + 3 * from_row);
  four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  four ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7), cd2 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  *(four_anywhere*)to = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
  *(four_anywhere*)(to + to_row) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
  *(four_anywhere*)(to + 2 * to_row) = __builtin_shufflevector(ab2, cd2, 0, 1, 4, 5);
  *(four_anywhere*)(to + 3 * to_row) = __builtin_shufflevector(ab2, cd2, 2, 3, 6, 7);
}
#endif

// Neighbours in memory. (`copy_row` for floats would store them past the caches.)
template <class T> static INLINE void widen_row(float* to, const T* from, int64_t n) {
  for (int64_t i = 0; i < n; i++) to[i] = (float)from[i];
}
static INLINE void widen_row(float* to, const float16* from, int64_t n) { copy_row(to, from, n); }

// A tile of `rows` by `columns`: its element (r, c) lies at from[r * row + c * column] and goes to to[r * to_row + c].
// Columns from `columns` to `width` become 0.
template <class T>
static void fill_tile(float* to, int64_t to_row, const T* from, int64_t row, int64_t column, int64_t rows, int64_t columns,
                      int64_t width) {
  for (int64_t r = 0; r < rows && columns < width; r++)
    for (int64_t c = columns; c < width; c++) to[r * to_row + c] = 0;

  int64_t r = 0;
#ifdef HAS_SHUFFLES
  if (row == 1) {
    for (; r + 4 <= rows; r += 4) {
      int64_t c = 0;
      for (; c + 4 <= columns; c += 4) transpose_four(to + r * to_row + c, to_row, from + r + c * column, column);
      for (; c < columns; c++)
        for (int64_t k = r; k < r + 4; k++) to[k * to_row + c] = from[k + c * column];
    }
  }
#endif
  for (; r < rows; r++) {
    float* row_of_tile = to + r * to_row;
    if (column == 1) {
      widen_row(row_of_tile, from + r * row, columns);
    } else {
      for (int64_t c = 0; c < columns; c++) row_of_tile[c] = from[r * row + c * column];
    }
  }
}

// Is there no NaN and no infinity in a part of a matrix? Then 0 times it is 0.
template <class T>
static bool all_finite(const T* from, int64_t row, int64_t column, int64_t rows, int64_t columns) {
  int others = 0;
  for (int64_t r = 0; r < rows; r++) {
#pragma omp simd reduction(|: others)
    for (int64_t c = 0; c < columns; c++) {
      float x = (float)from[r * row + c * column];
      others |= x - x != 0;
    }
  }
  return !others;
}
