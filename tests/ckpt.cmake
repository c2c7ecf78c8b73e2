# The checkpoint room: tensor files, checkpoints, model folders. "thread" marks what the thread sanitizer runs.
tg_test(test_safetensors ROOMS ckpt)
tg_test(test_checkpoint ROOMS ckpt)
