# The checkpoint room: tensor files, checkpoints, model folders. "thread" marks what the thread sanitizer runs.
tg_test(test_safetensors ROOMS ckpt)
tg_test(test_checkpoint ROOMS ckpt)
tg_test(test_ckpt_writer ROOMS ckpt LABELS fast thread)
tg_test(test_ckpt_crash ROOMS ckpt)
tg_test(test_hf_folder ROOMS ckpt)
