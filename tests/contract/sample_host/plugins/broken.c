// SPDX-License-Identifier: Apache-2.0
/* Small libraries that each break one promise; which one is chosen by a macro. */
#include <ctxbroker/plugin.h>
#include <stddef.h>

#if !defined(VARIANT_EXPORTS_NOTHING)

#if defined(VARIANT_WRONG_MAJOR)
#define ABI_MAJOR (CTXB_ABI_MAJOR + 1)
#else
#define ABI_MAJOR CTXB_ABI_MAJOR
#endif

struct instance {
  ctxb_plugin plugin;
  const ctxb_host* host;
};
static struct instance the_instance;

static ctxb_status init(const char* path) {
  (void)path;
#if defined(VARIANT_INIT_FAILS)
  return CTXB_ERROR_UNAVAILABLE;
#else
  return CTXB_OK;
#endif
}

static void deinit(void) {}

static ctxb_status activate(const ctxb_plugin* plugin, const ctxb_activation* activation) {
  (void)plugin;
  (void)activation;
  return CTXB_OK;
}

static ctxb_status process(const ctxb_plugin* plugin, const ctxb_job* job) {
  (void)plugin;
  (void)job;
#if defined(VARIANT_PROCESS_FAILS)
  return the_instance.host->fail(the_instance.host, CTXB_ERROR, 0, "the colours have run out");
#else
  return CTXB_BYPASS;
#endif
}

static void deactivate(const ctxb_plugin* plugin) {
  (void)plugin;
}
static void destroy(const ctxb_plugin* plugin) {
  (void)plugin;
}
static void context_lost(const ctxb_plugin* plugin, const ctxb_loss* loss) {
  (void)plugin;
  (void)loss;
}

static const void* get_extension(const ctxb_plugin* plugin, const char* id) {
  (void)plugin;
  (void)id;
  return NULL;
}

#if defined(VARIANT_GARBAGE_IMAGE)
static const char garbage[] = "This is neither PTX nor a cubin nor a fatbin.";
static const ctxb_module modules[] = {
    {.size = sizeof(ctxb_module), .name = "garbage", .data = garbage, .data_size = sizeof garbage}};
#define MODULES modules
#define MODULE_COUNT 1
#else
#define MODULES NULL
#define MODULE_COUNT 0
#endif

#if defined(VARIANT_NEEDS_GPU)
#define FLAGS CTXB_PLUGIN_NEEDS_NVIDIA_DRIVER
#else
#define FLAGS 0
#endif

#if defined(VARIANT_TAKES_HALVES)
#define SAMPLES CTXB_SAMPLE_HALF
#else
#define SAMPLES CTXB_SAMPLE_FLOAT
#endif

static const ctxb_port input = {sizeof(ctxb_port), 0,       "in", "Input",
                                CTXB_CHANNELS(4),  SAMPLES, 0,    0};
static const ctxb_port output = {sizeof(ctxb_port), 0,       "out", "Output",
                                 CTXB_CHANNELS(4),  SAMPLES, 0,     0};

#define DESCRIPTOR(plugin_id, plugin_name)                                                       \
  {                                                                                              \
    sizeof(ctxb_plugin_descriptor), CTXB_MEDIA_IMAGE, plugin_id, plugin_name, "ctxbroker tests", \
        "1.0.0", "Passes the image on.", NULL, FLAGS, CTXB_CUDA_KERNELS, CTXB_LEASE_AUTO,        \
        CTXB_CONCURRENCY_INSTANCES, 0, 0, NULL, 0, MODULE_COUNT, MODULES, &input, &output, 1, 1  \
  }

static const ctxb_plugin_descriptor descriptors[] = {
#if defined(VARIANT_TWINS)
    DESCRIPTOR("org.ctxbroker.test.a.twin", "Twin A"),
    DESCRIPTOR("org.ctxbroker.test.b.twin", "Twin B"),
#else
    DESCRIPTOR("org.ctxbroker.test.broken", "Broken"),
#endif
};

static uint32_t count(void) {
  return sizeof descriptors / sizeof descriptors[0];
}

static const ctxb_plugin_descriptor* describe(uint32_t index) {
  return index < count() ? &descriptors[index] : NULL;
}

static const ctxb_plugin* create(uint32_t index, const ctxb_host* host) {
  static const ctxb_plugin functions = {sizeof(ctxb_plugin), NULL,    activate,     process,
                                        deactivate,          destroy, context_lost, get_extension};
  (void)index;
  the_instance.plugin = functions;
  the_instance.host = host;
  return &the_instance.plugin;
}

static const ctxb_plugin_factory factory = {sizeof(ctxb_plugin_factory), count, describe, create};

static const void* get_factory(const char* id) {
  const char* expected = CTXB_PLUGIN_FACTORY_ID;
  while (*id != 0 && *id == *expected) {
    ++id;
    ++expected;
  }
  return *id == *expected ? &factory : NULL;
}

CTXB_EXPORT const ctxb_plugin_entry_type ctxb_plugin_entry = {
    sizeof(ctxb_plugin_entry_type), ABI_MAJOR, CTXB_ABI_MINOR, init, deinit, get_factory};

#else
int ctxb_test_unused(void);
int ctxb_test_unused(void) {
  return 0;
}
#endif
