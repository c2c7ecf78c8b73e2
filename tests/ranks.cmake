# Runs on several ranks of this machine, through mpirun.
tg_test(test_team SOURCES test_team.c tiny_lm.c scratch.c ROOMS train LABELS fast)
if(TENG_MPI_LIBRARY)
  tg_mpi_test(test_team_2 2 COMMAND $<TARGET_FILE:test_team> LABELS fast)
  tg_mpi_test(test_team_4 4 COMMAND $<TARGET_FILE:test_team> LABELS fast)

  add_test(NAME test_products_ranks COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/test_products_ranks.sh $<TARGET_FILE:teng>
                                            ${CMAKE_SOURCE_DIR})
  set_tests_properties(test_products_ranks PROPERTIES LABELS fast SKIP_RETURN_CODE 77 TIMEOUT 300 PROCESSORS 2
    ENVIRONMENT TENG_MPIRUN=${TENG_MPIRUN})

  # tg_ranks_test(name FAMILY … ALL "KEY=VALUE …" LABELS … CASES "RANKS KEY=VALUE …" …)
  function(tg_ranks_test name)
    cmake_parse_arguments(T "" "FAMILY;ALL" "LABELS;CASES" ${ARGN})
    set(depth all)
    if("fast" IN_LIST T_LABELS)
      set(depth some)
    endif()
    add_test(NAME ${name} COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/test_ranks.sh $<TARGET_FILE:teng> ${CMAKE_SOURCE_DIR}
                                  ${T_FAMILY} ${depth} "${T_ALL}" ${T_CASES})
    set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}" SKIP_RETURN_CODE 77 TIMEOUT 300 PROCESSORS 2
      ENVIRONMENT TENG_MPIRUN=${TENG_MPIRUN})
  endfunction()
  tg_ranks_test(ranks_data FAMILY llama LABELS fast CASES
    "2 parallel.data=2 parallel.zero=3 parallel.checksum_every=5" "4 parallel.data=4 parallel.zero=2 train.micro_batches=2")
  tg_ranks_test(ranks_tensor FAMILY llama LABELS fast CASES
    "2 parallel.tensor=2 parallel.check=true" "4 parallel.data=2 parallel.tensor=2 parallel.sequence=true parallel.zero=1")
  tg_ranks_test(ranks_expert FAMILY mixtral LABELS fast CASES
    "2 parallel.expert=2 parallel.zero=3" "4 parallel.expert=2 parallel.context=2 parallel.zero=2 train.micro_batches=2")
  tg_ranks_test(ranks_stages FAMILY llama LABELS fast CASES
    "4 parallel.context=2 parallel.pipeline=2 parallel.zero=3 train.micro_batches=2")
  tg_ranks_test(ranks_pynative FAMILY llama LABELS fast CASES
    "2 parallel.data=2 context.mode=pynative" "2 parallel.data=2 parallel.zero=3 context.mode=pynative train.micro_batches=2")
  tg_ranks_test(ranks_many_data FAMILY llama LABELS slow CASES
    "2 parallel.data=2" "2 parallel.data=2 parallel.zero=1" "2 parallel.data=2 parallel.zero=2" "4 parallel.data=4 parallel.zero=3"
    "4 parallel.data=4 parallel.zero=3 parallel.shard_group=2" "8 parallel.data=8 parallel.zero=3"
    "2 parallel.mode=data_parallel" "2 parallel.data=2 parallel.fusion=off" "2 parallel.data=2 parallel.fusion=4KiB"
    "2 parallel.data=2 parallel.reduce_dtype=bf16" "2 parallel.data=2 memory.recompute=full"
    "2 parallel.data=2 parallel.zero=3 train.micro_batches=4"
    "4 parallel.data=4 parallel.zero=1 context.mode=pynative")
  tg_ranks_test(ranks_many_tensor FAMILY llama LABELS slow CASES
    "2 parallel.tensor=2 parallel.sequence=true" "4 parallel.tensor=4" "4 parallel.tensor=4 parallel.sequence=true"
    "4 parallel.data=2 parallel.tensor=2 parallel.zero=3 parallel.sequence=true"
    "4 parallel.data=2 parallel.tensor=2 parallel.zero=2 train.micro_batches=2"
    "8 parallel.data=4 parallel.tensor=2 parallel.zero=3"
    "8 parallel.data=4 parallel.zero=3 parallel.shard_group=2 parallel.tensor=2")
  tg_ranks_test(ranks_many_pipeline FAMILY llama LABELS slow CASES
    "2 parallel.pipeline=2 train.micro_batches=4" "4 parallel.pipeline=2 parallel.data=2 parallel.zero=2 train.micro_batches=4"
    "2 parallel.pipeline=2 parallel.schedule=gpipe train.micro_batches=4 memory.recompute=full"
    "4 parallel.pipeline=4 parallel.schedule=zero_bubble train.micro_batches=4"
    "4 parallel.pipeline=2 parallel.tensor=2 parallel.schedule=interleaved parallel.chunks=2 train.micro_batches=2"
    "8 parallel.pipeline=2 parallel.tensor=2 parallel.data=2 parallel.zero=3 train.micro_batches=4")
  tg_ranks_test(ranks_many_context FAMILY llama LABELS slow CASES
    "2 parallel.context=2" "4 parallel.context=4" "4 parallel.context=2 parallel.data=2 parallel.zero=3"
    "4 parallel.context=2 parallel.tensor=2 parallel.sequence=true" "4 parallel.context=2 parallel.pipeline=2 train.micro_batches=4"
    "8 parallel.data=2 parallel.tensor=2 parallel.sequence=true parallel.context=2 parallel.zero=1")
  # Parameters are shared out among whoever holds the same of them.
  tg_ranks_test(ranks_many_zero FAMILY llama LABELS slow CASES
    "2 parallel.context=2 parallel.zero=1" "2 parallel.context=2 parallel.zero=2 train.micro_batches=2"
    "2 parallel.context=2 parallel.zero=3 train.micro_batches=2" "4 parallel.context=4 parallel.zero=3 memory.recompute=full"
    "4 parallel.context=2 parallel.tensor=2 parallel.zero=3" "4 parallel.context=2 parallel.data=2 parallel.zero=1"
    "8 parallel.data=4 parallel.context=2 parallel.zero=3 parallel.shard_group=2" "2 parallel.tensor=2 parallel.zero=3"
    "8 parallel.pipeline=2 parallel.context=2 parallel.data=2 parallel.zero=2 parallel.schedule=zero_bubble train.micro_batches=4"
    "4 parallel.pipeline=2 parallel.context=2 parallel.zero=3 parallel.schedule=interleaved parallel.chunks=2 train.micro_batches=2"
    "2 parallel.context=2 parallel.zero=2 parallel.reduce_dtype=bf16")
  tg_ranks_test(ranks_many_zero_experts FAMILY mixtral LABELS slow CASES
    "2 parallel.expert=2 parallel.zero=1" "2 parallel.expert=2 parallel.zero=2 train.micro_batches=2"
    "4 parallel.expert=4 parallel.zero=3" "4 parallel.expert=2 parallel.context=2 parallel.zero=1"
    "4 parallel.expert=2 parallel.context=2 parallel.zero=3 train.micro_batches=2" "8 parallel.data=8 parallel.zero=3"
    "4 parallel.expert=2 parallel.tensor=2 parallel.zero=3" "4 parallel.expert=2 parallel.pipeline=2 parallel.zero=2"
    "8 parallel.expert=2 parallel.data=4 parallel.zero=1 parallel.shard_group=2")
  # Keys and values of four rows, which eight ranks share out by columns.
  tg_ranks_test(ranks_many_zero_heads FAMILY qwen3 ALL "model.head_dim=4 model.num_key_value_heads=1" LABELS slow CASES
    "8 parallel.data=8 parallel.zero=3 context.mode=pynative" "8 parallel.data=4 parallel.context=2 parallel.zero=1")
  tg_ranks_test(ranks_many_sgd FAMILY llama ALL "optimizer.name=sgd optimizer.nesterov=true" LABELS slow CASES
    "4 parallel.data=4 parallel.zero=2" "2 parallel.data=2 parallel.zero=3 context.mode=pynative")
  # Rows with few labels: ranks and micro-batches count for what they have.
  tg_ranks_test(ranks_many_documents FAMILY llama ALL "data.packing=document data.seq_buckets=[16,32]" LABELS slow CASES
    "2 parallel.data=2 train.micro_batches=2" "4 parallel.data=4" "2 parallel.tensor=2 parallel.sequence=true"
    "2 parallel.data=2 context.mode=pynative train.micro_batches=2" "4 parallel.data=4 context.mode=pynative")
  tg_ranks_test(ranks_many_gpt2 FAMILY gpt2 LABELS slow CASES
    "2 parallel.data=2 parallel.zero=3" "2 parallel.tensor=2" "4 parallel.data=2 parallel.tensor=2 parallel.sequence=true"
    "2 parallel.context=2" "4 parallel.pipeline=2 parallel.tensor=2 train.micro_batches=2")
  tg_ranks_test(ranks_many_dropout FAMILY gpt2 ALL "model.resid_pdrop=0.1 model.embd_pdrop=0.1" LABELS slow CASES
    "2 parallel.data=2 context.mode=pynative" "2 parallel.tensor=2" "4 parallel.data=2 parallel.pipeline=2 train.micro_batches=2")
  tg_ranks_test(ranks_many_qwen3 FAMILY qwen3 LABELS slow CASES
    "2 parallel.data=2 parallel.zero=3" "2 parallel.tensor=2 parallel.sequence=true" "4 parallel.tensor=4"
    "2 parallel.pipeline=2 train.micro_batches=2" "2 parallel.context=2")
  # Heads that are less wide than the model by itself would make them.
  tg_ranks_test(ranks_many_heads FAMILY qwen3 ALL "model.head_dim=4" LABELS slow CASES
    "2 parallel.data=2 parallel.zero=1" "2 parallel.tensor=2")
  tg_ranks_test(ranks_many_qwen2 FAMILY qwen2 LABELS slow CASES "2 parallel.tensor=2" "4 parallel.data=2 parallel.tensor=2")
  tg_ranks_test(ranks_many_mistral FAMILY mistral LABELS slow CASES "2 parallel.data=2" "2 parallel.tensor=2")
  tg_ranks_test(ranks_many_mixtral FAMILY mixtral LABELS slow CASES
    "2 parallel.expert=2" "4 parallel.expert=4" "2 parallel.data=2 parallel.zero=3" "2 parallel.tensor=2"
    "4 parallel.expert=2 parallel.tensor=2" "4 parallel.expert=2 parallel.data=2 train.micro_batches=2"
    "8 parallel.expert=2 parallel.data=2 parallel.tensor=2 parallel.zero=2" "4 parallel.expert=2 parallel.pipeline=2"
    "4 parallel.expert=2 parallel.context=2")
  tg_ranks_test(ranks_many_qwen3_moe FAMILY qwen3_moe LABELS slow CASES "2 parallel.expert=2" "2 parallel.tensor=2")

  foreach(name ranks_resume ranks_faults)
    add_test(NAME test_${name} COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/test_${name}.sh $<TARGET_FILE:teng> ${CMAKE_SOURCE_DIR})
    set_tests_properties(test_${name} PROPERTIES LABELS slow SKIP_RETURN_CODE 77 TIMEOUT 300 PROCESSORS 2
      ENVIRONMENT TENG_MPIRUN=${TENG_MPIRUN})
  endforeach()
endif()
