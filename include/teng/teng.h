/* All of teng's public interface. */
#ifndef TENG_TENG_H
#define TENG_TENG_H

#include "teng/data.h"
#include "teng/nn.h"
#include "teng/operator.h"
#include "teng/ops.h"
#include "teng/status.h"
#include "teng/tensor.h"
#include "teng/train.h"

#endif
