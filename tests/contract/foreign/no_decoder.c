// SPDX-License-Identifier: Apache-2.0
// Has the names of NVIDIA's video decoder that GStreamer's plug-in looks up, and decodes nothing.
#define REFUSES(name) \
  int name(void);     \
  int name(void) {    \
    return 801;       \
  } /* CUDA_ERROR_NOT_SUPPORTED */

REFUSES(cuvidCreateDecoder)
REFUSES(cuvidCreateVideoParser)
REFUSES(cuvidCtxLock)
REFUSES(cuvidCtxLockCreate)
REFUSES(cuvidCtxLockDestroy)
REFUSES(cuvidCtxUnlock)
REFUSES(cuvidDecodePicture)
REFUSES(cuvidDestroyDecoder)
REFUSES(cuvidDestroyVideoParser)
REFUSES(cuvidGetDecoderCaps)
REFUSES(cuvidMapVideoFrame64)
REFUSES(cuvidParseVideoData)
REFUSES(cuvidUnmapVideoFrame64)
