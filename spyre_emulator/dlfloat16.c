/* DLFloat16 (1 sign, 6 exponent, 9 fraction bits, bias 31) over float32 buffers, plain C, no torch headers.
 *
 * No subnormals; zero is exponent 0 with fraction 0; the code 0x7FFF is NaN or infinity.
 * Loaded with ctypes. Not linked with OpenMP on purpose: that would bring a second runtime beside torch's. */
#include <stdint.h>

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif

#define INFINITE 0x7f800000u
#define SMALLEST (((127u - 31u) << 23) | (1u << 14))   /* 2^-31 (1 + 1/512) as float32 bits */
#define LARGEST (((127u + 32u) << 23) | (510u << 14))  /* 2^32 (1 + 510/512) */
#define REBIAS ((127u - 31u) << 23)

/* bias and lsb select the rule: nearest-even 0x1fff/1, nearest-up 0x2000/0, truncate 0/0.
 * floor_ is the largest magnitude that becomes zero instead of the smallest number. */
static inline uint32_t round_bits(uint32_t u, uint32_t bias, uint32_t lsb, uint32_t floor_) {
  uint32_t sign = u & 0x80000000u, a = u & 0x7fffffffu;
  uint32_t r = (a + bias + ((a >> 14) & lsb)) & 0xffffc000u;
  r = r < SMALLEST ? (a > floor_ ? SMALLEST : 0u) : r;
  r = r > LARGEST ? INFINITE : r;
  r = a >= INFINITE ? a : r; /* the float32 shadow keeps signed infinities and NaN */
  return sign | r;
}

CLONES void dlfloat16_round(void *data, int64_t n, uint32_t bias, uint32_t lsb, uint32_t floor_) {
  uint32_t *x = (uint32_t *)data;
  for (int64_t i = 0; i < n; i++) x[i] = round_bits(x[i], bias, lsb, floor_);
}

CLONES void dlfloat16_decode(const uint16_t *codes, uint32_t *out, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    uint32_t h = codes[i], sign = (h & 0x8000u) << 16, a = h & 0x7fffu;
    uint32_t r = a == 0 ? 0u : (a << 14) + REBIAS;
    r = a == 0x7fffu ? 0x7fc00000u : r;
    out[i] = sign | r;
  }
}

/* Expects values that are DLFloat16 numbers already. */
CLONES void dlfloat16_encode(const uint32_t *in, uint16_t *codes, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    uint32_t sign = (in[i] >> 16) & 0x8000u, a = in[i] & 0x7fffffffu;
    uint32_t r = a == 0 ? 0u : (a - REBIAS) >> 14;
    r = a >= INFINITE ? 0x7fffu : r;
    codes[i] = (uint16_t)(sign | r);
  }
}

/* Sums of `rows` contiguous rows of n numbers, accumulated in DLFloat16: element i goes to lane i % lanes, every
 * addition is rounded, and the lanes are added pairwise at the end. `scratch` holds lanes numbers. */
CLONES void dlfloat16_sum(const float *x, float *out, int64_t rows, int64_t n, int64_t lanes, float *scratch,
                          uint32_t bias, uint32_t lsb, uint32_t floor_) {
  union { float f; uint32_t u; } v;
  for (int64_t r = 0; r < rows; r++) {
    const float *row = x + r * n;
    for (int64_t l = 0; l < lanes; l++) scratch[l] = 0.0f;
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes)
      for (int64_t l = 0; l < lanes; l++) {
        union { float f; uint32_t u; } w;
        w.f = scratch[l] + row[i + l];
        w.u = round_bits(w.u, bias, lsb, floor_);
        scratch[l] = w.f;
      }
    for (int64_t l = 0; i + l < n; l++) {
      v.f = scratch[l] + row[i + l];
      v.u = round_bits(v.u, bias, lsb, floor_);
      scratch[l] = v.f;
    }
    for (int64_t half = lanes / 2; half > 0; half /= 2)
      for (int64_t l = 0; l < half; l++) {
        v.f = scratch[l] + scratch[l + half];
        v.u = round_bits(v.u, bias, lsb, floor_);
        scratch[l] = v.f;
      }
    out[r] = scratch[0];
  }
}
