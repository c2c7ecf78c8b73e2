/* cmocka with the four headers it wants before its own. */
#ifndef TENG_TESTS_CMOCKA_ALL_H
#define TENG_TESTS_CMOCKA_ALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
