// What a generated kernel may call. Included as text before the kernels; no header but <stdint.h>, so a build takes a
// fraction of a second. Every function is plain scalar code without branches: inlined into a loop under `#pragma omp simd`
// the compiler computes 4, 8 or 16 of them at once.
// In PyTorch: torch/include/ATen/cpu/vec/, and torch/csrc/inductor/cpp_prefix.h.

#include <stdint.h>

#define INLINE inline __attribute__((always_inline))
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")

// --- bits ---------------------------------------------------------------------------------------------------------

static INLINE uint32_t bits_of(float x) { uint32_t b; __builtin_memcpy(&b, &x, 4); return b; }
static INLINE float float_of(uint32_t b) { float x; __builtin_memcpy(&x, &b, 4); return x; }

// a * b + c, rounded once where the machine can do it in one instruction.
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
static INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
static INLINE float fma(float a, float b, float c) { return a * b + c; }
#endif

// --- 16-bit floats: stored in two bytes, computed as float ----------------------------------------------------------
// Plain structs with an `operator=` and no constructor: a temporary object would keep the compiler from vectorising.

// The upper half of a float; rounds to nearest, ties to even.
struct bfloat16 {
  uint16_t bits;
  INLINE operator float() const { return widen(bits); }
  INLINE void operator=(float x) { bits = bits_from(x); }
  static INLINE uint32_t bits_from(float x) {
    uint32_t b = bits_of(x);
    return x != x ? 0x7fc0 : (b + 0x7fff + ((b >> 16) & 1)) >> 16;
  }
  static INLINE float widen(uint32_t bits) { return float_of(bits << 16); }
};

// 1 sign, 5 exponent, 10 fraction bits. To round, add a power of two so large that the sum has no digits but float16's.
struct float16 {
  uint16_t bits;
  INLINE operator float() const { return widen(bits); }
  INLINE void operator=(float x) { bits = bits_from(x); }
  static INLINE uint32_t bits_from(float x) {
    uint32_t b = bits_of(x), a = b & 0x7fffffff, finite = a < 0x47800000 ? a : 0x47800000;  // from 2^16 on: infinity
    uint32_t e = finite & 0x7f800000;
    e = (e > 0x38800000 ? e : 0x38800000) + 0x06800000;  // below 2^-14 all numbers have the same last digit
    uint32_t digits = bits_of(float_of(finite) + float_of(e)) - e + ((e - 0x3f000000) >> 13);
    return ((b >> 16) & 0x8000) | (a > 0x7f800000 ? 0x7e00 : digits);
  }
  static INLINE float widen(uint16_t h) {
    uint32_t a = (int32_t)(int16_t)h * 8192 & 0x8fffe000;                // the sign, and the rest in its place
    float y = float_of(a) * 0x1p112f;                                    // exponent 15 -> 127, denormals too
    return float_of(__builtin_fabsf(y) < 65536.0f ? bits_of(y) : bits_of(y) | 0x7f800000);
  }
};

template <class T> static INLINE float rounded(float x) { return T::widen(T::bits_from(x)); }  // as if it had been stored as T

// --- rows at a time, by instructions that no compiler uses by itself: `store` puts a register full, `v`, to its place ----

template <class To, class From> static INLINE void copy_row(To* to, const From* from, int64_t n) {
  for (int64_t i = 0; i < n; i++) to[i] = from[i];
}
#if defined(__F16C__) && defined(__AVX__) && !defined(__clang__)
#ifdef __AVX512F__  // as wide as the loops around: what was stored in two halves is not forwarded to one load
#define WIDEST(avx, avx512) avx512
#else
#define WIDEST(avx, avx512) avx
#endif
typedef float floats __attribute__((vector_size(WIDEST(32, 64))));
typedef short halves __attribute__((vector_size(WIDEST(16, 32))));
#define COPY_ROW(To, From, Vector, store)                                                                          \
  static INLINE void copy_row(To* to, const From* from, int64_t n) {                                               \
    int64_t i = 0;                                                                                                 \
    for (Vector v; i + WIDEST(8, 16) <= n; i += WIDEST(8, 16)) { __builtin_memcpy(&v, from + i, sizeof v); store; } \
    for (; i < n; i++) to[i] = from[i];                                                                            \
  }
COPY_ROW(float, float16, halves,
         floats x = WIDEST(__builtin_ia32_vcvtph2ps256(v), __builtin_ia32_vcvtph2ps512_mask(v, floats{}, -1, 4));
         __builtin_memcpy(to + i, &x, sizeof x))
COPY_ROW(float16, float, floats,
         halves h = WIDEST(__builtin_ia32_vcvtps2ph256(v, 0), __builtin_ia32_vcvtps2ph512_mask(v, 0, halves{}, -1));
         __builtin_memcpy(to + i, &h, sizeof h))
// Past the caches: what was there before need not be fetched, and nothing is driven out.
COPY_ROW(float, float, floats, if ((uintptr_t)(to + i) % sizeof v) __builtin_memcpy(to + i, &v, sizeof v);
         else WIDEST(__builtin_ia32_movntps256, __builtin_ia32_movntps512)(to + i, v))
#endif
template <class T> static INLINE void round_row(float* row, int64_t n) {  // as if it had been stored as T
  T stored[64];
  copy_row(stored, row, n);
  copy_row(row, stored, n);
}
// What the next row needs, while this one is computed.
template <class T> static INLINE void fetch_row(const T* from, int64_t n) {
  for (int64_t i = 0; i < n; i += 64 / sizeof(T)) __builtin_prefetch(from + i, 0, 2);
}

// --- the C library's functions, by one name for float and double ------------------------------------------------------

#ifndef SIMD  // glibc's libmvec has them for whole SIMD registers (most since 2.35): `runtime/compiler.py` tries that
#define SIMD
#endif
#define LIBRARY1(name, versions)                                    \
  extern "C" versions double name(double) noexcept;                 \
  extern "C" versions float name##f(float) noexcept;
#define LIBRARY2(name, versions)                                    \
  extern "C" versions double name(double, double) noexcept;         \
  extern "C" versions float name##f(float, float) noexcept;         \
  static INLINE float name(float x, float y) { return name##f(x, y); }
#define FUNCTION(name, versions) LIBRARY1(name, versions) static INLINE float name(float x) { return name##f(x); }
LIBRARY1(exp, SIMD) LIBRARY1(log, SIMD) FUNCTION(sin, SIMD) FUNCTION(cos, SIMD) LIBRARY2(pow, SIMD) LIBRARY2(fmod, )
LIBRARY1(erf, SIMD) LIBRARY1(tanh, SIMD) FUNCTION(erfc, SIMD) FUNCTION(exp2, SIMD) FUNCTION(expm1, SIMD) LIBRARY2(atan2, SIMD)
FUNCTION(log2, SIMD) FUNCTION(log10, SIMD) FUNCTION(log1p, SIMD) FUNCTION(tan, SIMD) FUNCTION(asin, SIMD) FUNCTION(acos, SIMD)
FUNCTION(atan, SIMD) FUNCTION(sinh, SIMD) FUNCTION(cosh, SIMD) FUNCTION(asinh, SIMD) FUNCTION(acosh, SIMD) FUNCTION(atanh, SIMD)

#define BUILTIN(name, builtin)                                         \
  static INLINE float name(float x) { return __builtin_##builtin##f(x); } \
  static INLINE double name(double x) { return __builtin_##builtin(x); }
BUILTIN(sqrt, sqrt) BUILTIN(floor, floor) BUILTIN(ceil, ceil) BUILTIN(trunc, trunc) BUILTIN(round, rint) BUILTIN(abs, fabs)

// --- own vector mathematics: exp, log, erf, tanh, sigmoid for float -----------------------------------------------------

// A polynomial at x, its coefficients from the highest power down.
template <class... C> static INLINE float polynomial(float x, float p, C... more) { ((p = fma(p, x, more)), ...); return p; }

// exp(x) = 2^k * exp(r) with k = round(x / ln 2), |r| <= ln 2 / 2, and a polynomial for exp(r). 2^k is made of bits, in two
// factors, so that results near overflow and denormal ones come out right.
static INLINE float exp(float x) {
  float t = fma(x, 1.44269504f, 12582912.0f);  // adding 1.5 * 2^23 rounds to an integer, which is then in the low bits
  float k = t - 12582912.0f;
  float r = fma(k, -1.42860677e-6f, fma(k, -0.693145752f, x));
  float p = polynomial(r, 1.98527617e-4f, 1.39304355e-3f, 8.33337486e-3f, 4.16664891e-2f, 1.66666660e-1f, 0.5f);
  p = fma(p * r, r, r) + 1.0f;
  int32_t n = (int32_t)bits_of(t) - 0x4b400000, half = n >> 1;
  float y = p * float_of((uint32_t)(half + 127) << 23) * float_of((uint32_t)(n - half + 127) << 23);
  y = x > 88.8f ? INFINITY : y;
  return x < -104.0f ? 0.0f : y;
}

// log(x) = k ln 2 + log(m) with m in [sqrt(1/2), sqrt(2)) and a polynomial for log(1 + r), r = m - 1 (Cephes' logf).
static INLINE float log(float x) {
  float big = x < 1.17549435e-38f ? x * 8388608.0f : x;  // denormals: times 2^23 first
  uint32_t b = bits_of(big) - 0x3f3504f3;
  float k = (float)((int32_t)b >> 23) - (x < 1.17549435e-38f ? 23.0f : 0.0f);
  float r = float_of((b & 0x7fffff) + 0x3f3504f3) - 1.0f, r2 = r * r;
  float p = polynomial(r, 7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f,
                       -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f);
  float y = fma(k, 0.693359375f, r + fma(-0.5f, r2, fma(p * r, r2, k * -2.12194440e-4f)));
  y = x == INFINITY ? x : y;
  y = x == 0.0f ? -INFINITY : y;
  return x >= 0.0f ? y : NAN;
}

// erf(x) = x P(x^2) / Q(x^2): a rational minimax fit; beyond 4 it is 1 in float.
static INLINE float erf(float x) {
  float a = __builtin_fabsf(x), c = 4.0f < a ? 4.0f : a, s = c * c;
  float p = polynomial(s, -2.72614225801306e-10f, 2.77068142495902e-08f, -2.10102402082508e-06f, -5.69250639462346e-05f,
                       -7.34990630326855e-04f, -2.95459980854025e-03f, -1.60960333262415e-02f);
  float q = polynomial(s, -1.45660718464996e-05f, -2.13374055278905e-04f, -1.68282697438203e-03f, -7.37332916720468e-03f,
                       -1.42647390514189e-02f);
  return __builtin_copysignf(c * (p / q), x);
}

// tanh(x) = 1 - 2 / (exp(2x) + 1) away from zero; near zero, where that cancels, x + x^3 P(x^2) (Cephes' tanhf).
static INLINE float tanh(float x) {
  float a = __builtin_fabsf(x), s = x * x;
  float far = 1.0f - 2.0f / (exp(a + a) + 1.0f);
  float p = polynomial(s, -5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f, 1.33314422036e-1f, -3.33332819422e-1f);
  return __builtin_copysignf(a < 0.625f ? fma(p * s, a, a) : far, x);
}

template <class T> static INLINE T sigmoid(T x) { return 1 / (1 + exp(-x)); }
template <class T> static INLINE T rsqrt(T x) { return 1 / sqrt(x); }

// --- as torch defines them ----------------------------------------------------------------------------------------------

// An integer as a floating number. Of float -> int -> float GCC would make one truncation, which knows a -0 and does not
// wrap; adding a 0 of which it knows nothing (it could be changed from outside) prevents that.
int nothing = 0;
template <class F, class I> static INLINE F from_integer(I k) { return (F)(I)(k + (I)nothing); }

// NaN wins, and of equals the first: relu(-0.0) is maximum(-0.0, 0) and stays -0.0.
template <class T> static INLINE T maximum(T a, T b) { return (b > a || b != b) ? b : a; }
template <class T> static INLINE T minimum(T a, T b) { return (b < a || b != b) ? b : a; }
template <class T> static INLINE T abs(T x) { return x < 0 ? (T)-x : x; }

// Integers: the smallest has no negative, so divided by -1 it wraps around instead of trapping. (By what may be 0, torch's own
// operator divides, which raises. Here it does not trap either.) Floats: as torch.remainder and c10::div_floor_floating.
template <class T> static INLINE bool would_trap(T b) { return b == 0 || ((T)-1 < 0 && b == (T)-1); }
template <class T> static INLINE T fmod(T a, T b) { return would_trap(b) ? (T)0 : (T)(a % b); }
template <class T> static INLINE T mod(T a, T b) {  // the sign of the divisor
  T r = fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? (T)(r + b) : r;
}
template <class T> static INLINE T floordiv(T a, T b) {  // rounds towards minus infinity
  if constexpr ((T)0.5 == 0) {
    return would_trap(b) ? (T)(0 - (uint64_t)a) : (T)(a / b - (a % b != 0 && (a < 0) != (b < 0)));
  } else {
    T r = fmod(a, b), q = (a - r) / b;
    q = r != 0 && (r < 0) != (b < 0) ? q - 1 : q;
    T f = floor(q), zero = (T)__builtin_copysign(0.0, (double)(a / b));
    f = q - f > (T)0.5 ? f + 1 : f;
    return b == 0 ? a / b : q != 0 ? f : zero;
  }
}

// The power 0.5. It is no root: 0.0 for -0.0, and infinity for -infinity. (GCC makes a root of `pow` where it vectorizes.)
template <class T> static INLINE T half_power(T x) { return x == -(T)INFINITY ? (T)INFINITY : sqrt(x) + (T)0; }

template <class T> static INLINE T integer_pow(T a, T b) {
  if (b < 0) return a == 1 ? 1 : a == (T)-1 ? (b % 2 ? (T)-1 : (T)1) : (T)0;
  T result = 1;
  for (; b > 0; b /= 2, a = (T)(a * a)) result = b % 2 ? (T)(result * a) : result;
  return result;
}

// The number at this place of a seed, in [0, 1): Philox-4x32-10 (`lowering/philox.py`).
static INLINE float philox(int64_t seed, int64_t place) {
  uint32_t a = (uint32_t)place, b = (uint32_t)(place >> 32), c = 0, d = 0, key = (uint32_t)seed, key2 = (uint32_t)(seed >> 32);
  for (int round = 0; round < 10; round++, key += 0x9E3779B9, key2 += 0xBB67AE85) {
    uint64_t p = (uint64_t)a * 0xD2511F53, q = (uint64_t)c * 0xCD9E8D57;
    a = (uint32_t)(q >> 32) ^ b ^ key, b = (uint32_t)q, c = (uint32_t)(p >> 32) ^ d ^ key2, d = (uint32_t)p;
  }
  int32_t x = (int32_t)a;
  return (float)(x ^ x >> 31) * 4.6566127342e-10f;
}

// An element of an index tensor; `wrapped`: a negative one counts from the end. Out of range: sets `problem`, reads element 0.
int64_t NOTHING = 0;  // GCC 12 must not see that an index is a comparison's result: it reads at the mask then, -1, not at 1
static INLINE int64_t checked(int64_t i, int64_t size, int& problem) {
  bool inside = i >= 0 && i < size;
  problem |= inside ? 0 : 1;
  return (inside ? i : 0) ^ NOTHING;
}
static INLINE int64_t wrapped(int64_t i, int64_t size, int& problem) { return checked(i < 0 ? i + size : i, size, problem); }
