/* The CPU as a device: the host's memory and OpenMP's threads. */
#ifndef TG_DEVICE_CPU_DEVICE_H
#define TG_DEVICE_CPU_DEVICE_H

#include "device/device.h"

extern const tg_device_ops tg_cpu_device_ops;

#endif
