/* See ranks_world.h. */
#include "ranks_world.h"

#include "base/fail.h"
#include "op/op_list.h"

#include <stdio.h>

bool world_open(tg_axis axis, tg_comm **comm)
{
    tg_mesh mesh;
    int size[TG_AXES];
    for (int a = 0; a < TG_AXES; a++)
        size[a] = 1;
    teng_status status = tg_op_register_builtin();
    if (status == TENG_OK) status = tg_comm_open("auto", comm);
    if (status == TENG_OK) {
        size[axis] = tg_comm_size(*comm);
        status = tg_mesh_make(size, size[axis], &mesh);
    }
    if (status == TENG_OK) status = tg_comm_bind(*comm, &mesh);
    if (status != TENG_OK) fprintf(stderr, "%s\n", teng_error());
    return status == TENG_OK;
}

int world_close(tg_comm **comm, int failures)
{
    if (failures && tg_comm_size(*comm) > 1)
        tg_comm_abandon(comm, "a test failed");
    else
        tg_comm_close(comm);
    return failures;
}
