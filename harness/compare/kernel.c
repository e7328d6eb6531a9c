/* One block of a tensor pair, measured. The pure form is measure() in measure.py: counts, extremes and
 * histograms are equal bit for bit, sums up to the order of float64 additions.
 * Floats that are not negative are compared and binned as their bits, which order alike. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES
#endif

enum { CHUNK = 1024, SHIFT = 19, BINS = 1 << (31 - SHIFT) };

struct measures {
  double sum_y, sum_yy, sum_d, sum_a, sum_dd, sum_yd;
  int64_t unequal, mismatches, zeros_y, zeros_x, worst;
  float largest_y, largest_x, max_abs, max_ulp, needed;
};

int harness_measures_size(void) { return (int)sizeof(struct measures); }

static inline uint32_t bits_of(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }
static inline float float_of(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }

CLONES static void add_sums(const float *y, const float *x, int64_t n, struct measures *m) {
  double sy = 0, syy = 0, sd = 0, sa = 0, sdd = 0, syd = 0;
  for (int64_t i = 0; i < n; i++) {
    double yi = y[i], di = (float)(x[i] - y[i]);
    sy += yi;
    syy += yi * yi;
    sd += di;
    sa += fabs(di);
    sdd += di * di;
    syd += yi * di;
  }
  m->sum_y = sy, m->sum_yy = syy, m->sum_d = sd, m->sum_a = sa, m->sum_dd = sdd, m->sum_yd = syd;
}

struct extremes {
  uint32_t y, x, a, u, q;
  int32_t unequal, mismatches, zeros_y, zeros_x;
};

CLONES static void chunk(const float *y, const float *x, int n, float smallest, float atol, float rtol,
                         uint32_t *errors, uint32_t *ulps, struct extremes *e) {
  uint32_t my = e->y, mx = e->x, ma = e->a, mu = e->u, mq = e->q;
  int32_t unequal = 0, mismatches = 0, zy = 0, zx = 0;
  for (int i = 0; i < n; i++) {
    float yi = fabsf(y[i]), xi = fabsf(x[i]), a = fabsf(x[i] - y[i]);
    float big = yi > smallest ? yi : smallest;
    uint32_t inverse = (254u << 23) - (bits_of(big) & 0x7f800000u);
    inverse = inverse ? inverse : 1u << 22; /* 2^-127 is no normal float32 */
    float u = a * float_of(inverse), q = a / (yi + 1.0f);
    uint32_t ba = bits_of(a), bu = bits_of(u), bq = bits_of(q), by = bits_of(yi), bx = bits_of(xi);
    errors[i] = ba;
    ulps[i] = bu;
    my = by > my ? by : my;
    mx = bx > mx ? bx : mx;
    ma = ba > ma ? ba : ma;
    mu = bu > mu ? bu : mu;
    mq = bq > mq ? bq : mq;
    unequal += ba != 0;
    zy += by == 0;
    zx += bx == 0;
    float bound = rtol * yi;
    mismatches += a > atol + bound;
  }
  e->y = my, e->x = mx, e->a = ma, e->u = mu, e->q = mq;
  e->unequal += unequal, e->mismatches += mismatches, e->zeros_y += zy, e->zeros_x += zx;
}

static void count(const uint32_t *values, int n, int64_t *bins) {
  for (int i = 0; i < n; i++) bins[values[i] >> SHIFT]++;
}

/* Return 1 with everything filled in and counted; 0, with no bin touched, if a pair is not finite. */
int harness_measure(const float *y, const float *x, int64_t n, float smallest, float atol, float rtol,
                    struct measures *m, int64_t *error_bins, int64_t *ulp_bins) {
  uint32_t errors[CHUNK], ulps[CHUNK];
  struct extremes e = {0};
  add_sums(y, x, n, m);
  if (!isfinite(m->sum_dd) || !isfinite(m->sum_yy)) return 0;
  m->worst = 0;
  for (int64_t start = 0; start < n; start += CHUNK) {
    int size = n - start < CHUNK ? (int)(n - start) : CHUNK;
    uint32_t before = e.a;
    chunk(y + start, x + start, size, smallest, atol, rtol, errors, ulps, &e);
    if (e.a > before)
      for (int i = 0; i < size; i++)
        if (errors[i] == e.a) { m->worst = start + i; break; }
    count(errors, size, error_bins);
    count(ulps, size, ulp_bins);
  }
  m->unequal = e.unequal, m->mismatches = e.mismatches, m->zeros_y = e.zeros_y, m->zeros_x = e.zeros_x;
  m->largest_y = float_of(e.y), m->largest_x = float_of(e.x), m->max_abs = float_of(e.a);
  m->max_ulp = float_of(e.u), m->needed = float_of(e.q);
  return 1;
}
