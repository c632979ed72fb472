// SPDX-License-Identifier: Apache-2.0
// Comparisons into predicates, and selections by them.
#include "exec/level/float_common.hpp"

namespace ctxbroker::software::exec::CTXB_LEVEL {
namespace {

template <class T>
CTXB_OP Pred eq(T a, T b) {
  return a == b;
}
template <class T>
CTXB_OP Pred ne(T a, T b) {
  return a != b;
}
template <class T>
CTXB_OP Pred lt(T a, T b) {
  return a < b;
}
template <class T>
CTXB_OP Pred le(T a, T b) {
  return a <= b;
}
template <class T>
CTXB_OP Pred gt(T a, T b) {
  return a > b;
}
template <class T>
CTXB_OP Pred ge(T a, T b) {
  return a >= b;
}
// Floats: eq to ge are false if an operand is NaN (ne too), equ to geu are true.
template <class T>
CTXB_OP Pred num(T a, T b) {
  return (a == a) & (b == b);
}
template <class T>
CTXB_OP Pred nan(T a, T b) {
  return (a != a) | (b != b);
}
template <class T>
CTXB_OP Pred ne_ordered(T a, T b) {
  return (a < b) | (a > b);
}
template <class T>
CTXB_OP Pred equ(T a, T b) {
  return !((a < b) | (a > b));
}
template <class T>
CTXB_OP Pred ltu(T a, T b) {
  return !(a >= b);
}
template <class T>
CTXB_OP Pred leu(T a, T b) {
  return !(a > b);
}
template <class T>
CTXB_OP Pred gtu(T a, T b) {
  return !(a <= b);
}
template <class T>
CTXB_OP Pred geu(T a, T b) {
  return !(a < b);
}
template <Pred (*F)(f32, f32)>
CTXB_OP Pred ftz(f32 a, f32 b) {
  return F(flush(a), flush(b));
}

template <class T>
CTXB_OP T select(T a, T b, Pred p) {
  return p != 0 ? a : b;
}
template <class T>
CTXB_OP T select_sign(T a, T b, u32 c) {
  return static_cast<s32>(c) >= 0 ? a : b;
}
template <class T>
CTXB_OP T select_float(T a, T b, f32 c) {
  return c >= 0 ? a : b;
}
template <class T>
CTXB_OP T select_float_ftz(T a, T b, f32 c) {
  return flush(c) >= 0 ? a : b;
}

}  // namespace

#define CTXB_B(function, name)                                        \
  pure<function<u16>>(name ".b16"), pure<function<u32>>(name ".b32"), \
      pure<function<u64>>(name ".b64")
#define CTXB_US(function, name)                                           \
  pure<function<u16>>(name ".u16"), pure<function<u32>>(name ".u32"),     \
      pure<function<u64>>(name ".u64"), pure<function<s16>>(name ".s16"), \
      pure<function<s32>>(name ".s32"), pure<function<s64>>(name ".s64")
#define CTXB_F(function, name)                                                 \
  pure<function<f32>>(name ".f32"), pure<ftz<function<f32>>>(name ".ftz.f32"), \
      pure<function<f64>>(name ".f64")

extern const OpEntry compare_ops[] = {
    CTXB_B(eq, "setp.eq"),
    CTXB_B(ne, "setp.ne"),
    CTXB_US(lt, "setp.lt"),
    CTXB_US(le, "setp.le"),
    CTXB_US(gt, "setp.gt"),
    CTXB_US(ge, "setp.ge"),
    CTXB_F(eq, "setp.eq"),
    CTXB_F(ne_ordered, "setp.ne"),
    CTXB_F(lt, "setp.lt"),
    CTXB_F(le, "setp.le"),
    CTXB_F(gt, "setp.gt"),
    CTXB_F(ge, "setp.ge"),
    CTXB_F(equ, "setp.equ"),
    CTXB_F(ne, "setp.neu"),
    CTXB_F(ltu, "setp.ltu"),
    CTXB_F(leu, "setp.leu"),
    CTXB_F(gtu, "setp.gtu"),
    CTXB_F(geu, "setp.geu"),
    CTXB_F(num, "setp.num"),
    CTXB_F(nan, "setp.nan"),
    pure<select<u16>>("selp.b16"),
    pure<select<u32>>("selp.b32"),
    pure<select<u64>>("selp.b64"),
    CTXB_B(select_sign, "slct.s32"),
    CTXB_B(select_float, "slct.f32"),
    CTXB_B(select_float_ftz, "slct.ftz.f32"),
    end_of_table,
};

}  // namespace ctxbroker::software::exec::CTXB_LEVEL
