/* The table of device kinds and thin checked calls into it. It holds no device code. */
#include "device/device.h"

#include "base/fail.h"
#include "base/mem.h"
#include "device/cpu/cpu_device.h"

#include <string.h>

static const tg_device_ops *const table[] = {&tg_cpu_device_ops};
static const char *const kinds[] = {"cpu", NULL};

const char *const *tg_device_kinds(void)
{
    return kinds;
}

teng_status tg_device_open(const char *kind, int threads, tg_device **out)
{
    *out = NULL;
    if (!kind) kind = "";
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(kind, table[i]->kind)) return table[i]->open(threads, out);
    return tg_fail(TENG_INVALID, "device \"%s\" is not in this build: use cpu", kind);
}

void tg_device_close(tg_device **dev)
{
    if (dev && *dev) {
        (*dev)->ops->close(*dev);
        *dev = NULL;
    }
}

void *tg_device_alloc(tg_device *dev, size_t bytes)
{
    return dev->ops->alloc(dev, bytes);
}

void tg_device_free(tg_device *dev, void *ptr)
{
    if (ptr) dev->ops->free(dev, ptr);
}

teng_status tg_device_copy(tg_device *dev, void *stream, tg_copy_kind kind, void *dst, const void *src,
                           size_t bytes)
{
    return bytes ? dev->ops->copy(dev, stream, kind, dst, src, bytes) : TENG_OK;
}

teng_status tg_device_zero(tg_device *dev, void *stream, void *ptr, size_t bytes)
{
    return bytes ? dev->ops->zero(dev, stream, ptr, bytes) : TENG_OK;
}

teng_status tg_stream_create(tg_device *dev, void **stream)
{
    *stream = NULL;
    return dev->ops->stream_create(dev, stream);
}

void tg_stream_destroy(tg_device *dev, void **stream)
{
    if (*stream) dev->ops->stream_destroy(dev, *stream);
    *stream = NULL;
}

teng_status tg_stream_sync(tg_device *dev, void *stream)
{
    return dev->ops->stream_sync(dev, stream);
}
