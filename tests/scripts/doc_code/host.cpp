// SPDX-License-Identifier: Apache-2.0
// Calls the functions that the pages for host authors show, and looks at what they do. doc_code.py
// links it with those pages' blocks.
//
//     host FOLDER     the folder of the plug-ins that the pages show, and of grade.so
//
// The sample plug-ins are in the current folder's plugins/.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <ctxbroker/broker.hpp>
#include <ctxbroker/device_memory.hpp>
#include <ctxbroker/error.hpp>
#include <ctxbroker/graph.hpp>
#include <ctxbroker/preset.hpp>
#include <ctxbroker/scan.hpp>
#include <ctxbroker/stream.hpp>
#include <ctxbroker/tenant.hpp>
#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <utility>

using namespace ctxbroker;

// What the pages define.
void soften_picture(float* pixels, unsigned width, unsigned height);
void check_gate(const Broker& broker);
void print_memory(const Broker& broker);
void look_at(const std::vector<unsigned char>& bytes);
void set_up(PluginInstance& grade);
Broker open_broker();
void say_who_is_waited_for();
bool automate(PluginInstance& grade, std::size_t index, double value) noexcept;
void keep(const PluginInstance& grade);
void bring_back(PluginInstance& grade);
Graph over(Broker& broker, PluginInstance& blur, PluginInstance& merge,
           const ActivationSizes& sizes);
void put_over(Graph& over, const float* front, float* back, const float* mask, unsigned width,
              unsigned height);
void render(Graph& graph, const JobInfo& sizes, unsigned in_flight);
struct Done {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t last = 0;
};
GraphOptions tell(Done& done);
JobOutcome wait_for(Graph& graph, std::uint64_t number, Done& done);
GraphOptions options_of_a_viewer();
int forget(Graph& graph, std::uint64_t first, std::uint64_t last);
void filter_all(Broker& broker, Graph& graph, const JobInfo& job, std::size_t samples);
Graph on_device(Broker& broker, Tenant& host, PluginInstance& blur, const ActivationSizes& sizes);
std::uint64_t filter(Graph& graph, const void* frame, void* result, CUstream stream,
                     const JobInfo& job);
DeviceMemory offer(Tenant& host, std::uint64_t bytes, int socket);
DeviceMemory take(Tenant& host, std::uint64_t bytes, int socket);
void send_descriptor(int socket, int descriptor);
int receive_descriptor(int socket);
std::vector<const void*> inputs_of(const Graph& graph, std::int64_t frame);
void render_tile(Graph& graph, JobInfo job, const ImageRegion& tile, float* output);
Graph prepare(Broker& broker, PluginInstance& effect, unsigned frames, unsigned channels,
              double sample_rate);
bool callback(Graph& graph, float* samples, const JobInfo& block) noexcept;
void fade_out(Graph& graph, PluginInstance& gain, std::size_t level, std::int64_t begin,
              std::uint32_t length, float* samples, const JobInfo& block, JobEvents& events);
PluginLibrary find_and_load(Broker& broker, const std::string& name);
std::string keep_without_plugin(const std::string& text, const ScanResult& found);

namespace {

constexpr unsigned width = 33, height = 9;
constexpr std::size_t pixel_count = std::size_t{width} * height;

void check(bool is_right, const char* what) {
  if (!is_right) throw std::runtime_error(std::string("not so: ") + what);
}
bool near(float value, double wanted) {
  return std::fabs(value - wanted) < 1e-5;
}

ActivationSizes image_sizes() {
  ActivationSizes sizes;
  sizes.max_width = width;
  sizes.max_height = height;
  return sizes;
}
JobInfo image_job() {
  JobInfo job;
  job.width = width;
  job.height = height;
  return job;
}

// A plug-in of its own in a library of its own.
struct Loaded {
  Loaded(Broker& broker, const std::string& path, const char* name)
      : library(broker.load(path)), instance(broker.create(library, name)) {}
  PluginLibrary library;
  PluginInstance instance;
};

void blurs(void (*function)(float*, unsigned, unsigned)) {
  std::vector<float> pixels(pixel_count * 4, 0);
  const std::size_t middle = (height / 2 * width + width / 2) * 4;
  for (std::size_t i = 3; i < pixels.size(); i += 4) pixels[i] = 1;
  pixels[middle] = 1;
  function(pixels.data(), width, height);
  check(pixels[middle] > 0 && pixels[middle] < 1, "the white pixel is darker");
  check(pixels[middle + 4] > 0, "its neighbour is lighter");
}

std::vector<std::string> shown;

void parameters(Broker& broker, const std::string& folder) {
  Loaded grade(broker, folder + "/grade.so", "grade");
  PluginInstance& instance = grade.instance;
  set_up(instance);
  check(instance.parameter("radius") == 6 && instance.parameter("gain") == -3, "the numbers");
  check(instance.text("response").find("halls/big.wav") != std::string::npos, "the file");
  check(automate(instance, instance.description().parameter_index("gain"), -6), "it is set");
  check(!automate(instance, instance.description().parameter_index("gain"), 1000), "it is refused");
  keep(instance);
  instance.set_parameter("gain", 0);
  bring_back(instance);
  check(instance.parameter("gain") == -6 && shown.empty(), "the preset brings all back");
  Preset preset = read_preset("evening.json");
  preset.version = "0.5.0";
  write_preset(preset, "evening.json");
  bring_back(instance);
  check(!shown.empty(), "another version is remarked");
}

// CTXBROKER_PLUGIN_PATH has the folder of the sample plug-ins.
void discovery(Broker& broker) {
  shown.clear();
  check(find_and_load(broker, "exposure").name() == "exposure", "exposure is found and loaded");
  const auto line = [](const std::string& one) { return one.rfind("Exposure ", 0) == 0; };
  check(std::any_of(shown.begin(), shown.end(), line), "the plug-ins are listed");
  bool is_there = true;
  try {
    find_and_load(broker, "no_such_plugin");
  } catch (const std::runtime_error&) {
    is_there = false;
  }
  check(!is_there, "a plug-in that is not there is not found");

  // Without a manifest, the page's own program has to load the library.
  namespace fs = std::filesystem;
  fs::create_directory("bare");
  fs::copy_file("plugins/exposure.so", "bare/exposure.so");
  ScanOptions options;
  options.first = {"bare"};
  options.environment = options.standard = options.use_cache = false;
  options.program = fs::absolute("discovery_program");
  const ScanResult found = scan(options);
  check(found.find("exposure") != nullptr, "the page's program scans");
  Preset preset;
  preset.plugin = found.find("exposure")->id;
  preset.version = "1.0.0";
  check(keep_without_plugin(to_json(preset), found).empty(), "the plug-in is there");
  preset.plugin = "com.example.absent";
  check(keep_without_plugin(to_json(preset), found) == to_json(preset), "its text is kept");
  shown.clear();
}

void one_by_one(Broker& broker) {
  Loaded blur(broker, "plugins/blur.so", "blur"), merge(broker, "plugins/merge.so", "merge");
  blur.instance.set_parameter("radius", 0);
  blur.instance.activate(image_sizes());
  merge.instance.activate(image_sizes());
  Graph graph = over(broker, blur.instance, merge.instance, image_sizes());
  std::vector<float> front(pixel_count * 4, 1), back(pixel_count * 4, 0.25F), mask(pixel_count, 0);
  for (std::size_t i = 3; i < back.size(); i += 4) back[i] = 1;
  mask[0] = 1;
  put_over(graph, front.data(), back.data(), mask.data(), width, height);
  check(near(back[0], 1) && near(back[4], 0.25), "the mask allows the first pixel only");
}

// For render: frames full of their numbers, which exposure doubles.
constexpr unsigned frame_count = 5;
std::vector<std::vector<float>> frames(frame_count);
unsigned frames_written = 0;

void several(Broker& broker) {
  Loaded exposure(broker, "plugins/exposure.so", "exposure");
  exposure.instance.set_parameter("stops", 1);
  exposure.instance.activate(image_sizes());
  Done done;
  Graph graph(broker, {&exposure.instance}, image_sizes(), tell(done));
  render(graph, image_job(), 3);
  check(frames_written == frame_count, "all frames are written");
  std::unique_lock<std::mutex> lock(done.mutex);
  const bool told = done.changed.wait_for(lock, std::chrono::seconds(20),
                                          [&] { return done.last == frame_count; });
  check(told, "the host is told of the last job");
  lock.unlock();
  std::vector<float> one = frames[0];
  const std::uint64_t number = graph.submit({{frames[0].data()}, {one.data()}}, image_job());
  check(wait_for(graph, number, done) == JobOutcome::done && done.last == number,
        "the host waits for a job until it is told");
  Graph viewer(broker, {&exposure.instance}, image_sizes(), options_of_a_viewer());
  std::vector<std::vector<float>> results(8, frames[0]);
  for (auto& result : results) viewer.submit({{frames[0].data()}, {result.data()}}, image_job());
  int cancelled = forget(viewer, 1, 8);
  for (std::uint64_t job = 1; job <= 8; ++job) {
    if (viewer.finish(job) == JobOutcome::cancelled) --cancelled;
  }
  check(cancelled == 0, "what was taken back is cancelled");
}

// For filter_all: pictures full of their numbers.
unsigned pictures_read = 0, pictures_written = 0;

void without_staging(Broker& broker) {
  Loaded exposure(broker, "plugins/exposure.so", "exposure");
  exposure.instance.set_parameter("stops", 1);
  exposure.instance.activate(image_sizes());
  Graph graph(broker, {&exposure.instance}, image_sizes());
  filter_all(broker, graph, image_job(), pixel_count * 4);
  check(pictures_written == frame_count, "all pictures are written");
}

// A driver function, through the gate that this program has.
template <class Function>
Function* driver(const char* name) {
  auto* function = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  check(function != nullptr, name);
  return function;
}

void on_the_device(Broker& broker) {
  Loaded exposure(broker, "plugins/exposure.so", "exposure");
  exposure.instance.set_parameter("stops", 1);
  exposure.instance.activate(image_sizes());
  Tenant host = broker.host();
  std::vector<float> pixels(pixel_count * 4, 0.25F);
  const std::size_t bytes = pixels.size() * sizeof(float);
  {
    DeviceMemory frame(host, bytes), result(host, bytes);
    Stream stream(host);
    Graph graph = on_device(broker, host, exposure.instance, image_sizes());
    auto* upload =
        driver<int(std::uint64_t, const void*, std::size_t, CUstream)>("cuMemcpyHtoDAsync_v2");
    auto* download =
        driver<int(void*, std::uint64_t, std::size_t, CUstream)>("cuMemcpyDtoHAsync_v2");
    auto* wait = driver<int(CUstream)>("cuStreamSynchronize");
    const auto address = [](const DeviceMemory& memory) {
      return reinterpret_cast<void*>(memory.address());
    };
    check(host.run(
              0, [&] { return upload(frame.address(), pixels.data(), bytes, stream.get()); }) == 0,
          "the upload");
    const std::uint64_t number =
        filter(graph, address(frame), address(result), stream.get(), image_job());
    const int status = host.run(0, [&] {
      const int first = download(pixels.data(), result.address(), bytes, stream.get());
      return first != 0 ? first : wait(stream.get());
    });
    check(status == 0 && near(pixels[0], 0.5), "the stream waited for the result");
    check(graph.finish(number) == JobOutcome::done, "the job is finished");
    const DeviceMemory offered = offer(host, bytes, 0), taken = take(host, bytes, 0);
    std::vector<float> seen(pixels.size());
    const int shared = host.run(0, [&] {
      const int first = upload(offered.address(), pixels.data(), bytes, stream.get());
      const int then = download(seen.data(), taken.address(), bytes, stream.get());
      return first != 0 ? first : then != 0 ? then : wait(stream.get());
    });
    check(shared == 0 && seen == pixels && offered.address() != taken.address(),
          "one process sees what the other one writes");
  }
  host.close();
}

JobInfo audio_block(std::int64_t position, unsigned length, double rate) {
  JobInfo block;
  block.width = length;
  block.height = 1;
  block.sample_rate = rate;
  block.position = position;
  return block;
}

void audio(Broker& broker, const std::string& folder) {
  constexpr double rate = 48000;
  Loaded fader(broker, folder + "/fader.so", "fader");
  Graph graph = prepare(broker, fader.instance, 64, 1, rate);
  std::vector<float> samples(256, 1);
  fader.instance.set_parameter("level", 0.5);
  check(callback(graph, samples.data(), audio_block(0, 16, rate)), "the block is processed");
  check(near(samples[0], 0.5), "half as loud");
  check(!callback(graph, samples.data(), audio_block(0, 65, rate)), "a block too long is refused");
  std::fill(samples.begin(), samples.end(), 1.0F);
  fader.instance.set_parameter("level", 1);
  JobEvents events;
  // From frame 50 to 150, in blocks that begin at multiples of 64 and in one of 40 frames.
  for (std::int64_t at = 0, length = 64; at < 256; at += length) {
    length = at == 64 ? 40 : std::min<std::int64_t>(64, 256 - at);
    fade_out(graph, fader.instance, fader.instance.description().parameter_index("level"), 50, 100,
             samples.data() + at, audio_block(at, static_cast<unsigned>(length), rate), events);
  }
  for (int i = 0; i < 256; ++i) {
    const double level = i < 50 ? 1 : i < 150 ? 1 - (i - 50) / 100.0 : 0;
    check(near(samples[static_cast<std::size_t>(i)], level), "the fade does not know the blocks");
  }
  broker.end_realtime();
}

// Of frame_of_input, and of part_of_input as the job's frame.
std::vector<std::vector<float>> sequence;
std::vector<std::vector<float>> parts;

void several_frames(Broker& broker, const std::string& folder) {
  Loaded difference(broker, folder + "/difference.so", "difference");
  difference.instance.activate(image_sizes());
  Graph graph(broker, {&difference.instance}, image_sizes());
  sequence.clear();
  for (const float light : {0.5F, 2.0F, 1.0F}) sequence.emplace_back(pixel_count * 4, light);
  std::vector<float> result(pixel_count * 4);
  constexpr float wanted[] = {0, 1.5F, 1};
  for (std::int64_t frame = 0; frame < 3; ++frame) {
    JobInfo job = image_job();
    job.position = frame;
    graph.process({inputs_of(graph, frame), {result.data()}}, job);
    check(near(result[0], wanted[frame]), "the difference from the frame before");
  }
}

void tiles(Broker& broker, const std::string& folder) {
  Loaded dilate(broker, folder + "/dilate.so", "dilate");
  dilate.instance.activate(image_sizes());
  Graph graph(broker, {&dilate.instance}, image_sizes());
  sequence.assign(1, std::vector<float>(pixel_count * 4));
  for (std::size_t i = 0; i < pixel_count * 4; ++i) {
    sequence[0][i] = static_cast<float>(i * 7919 % 97) / 97;
  }
  std::vector<float> whole(pixel_count * 4), tile(pixel_count * 4);
  graph.process(sequence[0].data(), whole.data(), image_job());
  constexpr unsigned side = 5;
  for (unsigned y = 0; y < height; y += side) {
    for (unsigned x = 0; x < width; x += side) {
      const ImageRegion region{static_cast<int>(x), static_cast<int>(y), std::min(side, width - x),
                               std::min(side, height - y)};
      render_tile(graph, image_job(), region, tile.data());
      for (unsigned row = 0; row < region.height; ++row) {
        const float* const in_whole = &whole[(std::size_t{y + row} * width + x) * 4];
        const std::size_t row_bytes = std::size_t{region.width} * 4 * sizeof(float);
        const float* const in_tile = &tile[std::size_t{row} * region.width * 4];
        check(std::memcmp(in_whole, in_tile, row_bytes) == 0, "a tile is as in the whole picture");
      }
      const bool is_small = parts.back().size() < sequence[0].size() / 2;
      check(is_small, "a tile needs a part of the input");
    }
  }
}

void plugins_of_the_pages(Broker& broker, const std::string& folder) {
  Loaded vignette(broker, folder + "/vignette.so", "vignette");
  vignette.instance.set_parameter("amount", 1);
  vignette.instance.activate(image_sizes());
  std::vector<float> pixels(pixel_count * 4, 1);
  Graph(broker, {&vignette.instance}, image_sizes())
      .process(pixels.data(), pixels.data(), image_job());
  check(pixels[0] < 0.2F, "vignette darkens the corner");
  check(near(pixels[(height / 2 * width + width / 2) * 4], 1), "and not the middle");

  Loaded grey(broker, folder + "/grey.so", "grey");
  grey.instance.activate(image_sizes());
  std::vector<std::uint16_t> halves(pixel_count * 4, 0x3c00);             // 1
  for (std::size_t i = 0; i < halves.size(); i += 4) halves[i] = 0x4000;  // red is 2
  Graph of_halves(broker, {&grey.instance}, image_sizes(), {}, SampleType::float16);
  of_halves.process({{halves.data()}, {halves.data()}}, image_job());
  const bool is_grey = halves[0] == halves[1] && halves[0] > 0x3c00 && halves[0] < 0x4000;
  check(is_grey && halves[3] == 0x3c00, "halves become grey, and keep their alpha");
}

}  // namespace

// What the pages leave to the host.
void show(const std::string& line) {
  shown.push_back(line);
}

bool read_frame(unsigned frame, std::vector<const void*>& inputs, std::vector<void*>& outputs) {
  if (frame == frame_count) return false;
  frames[frame].assign(pixel_count * 4, static_cast<float>(frame));
  inputs = {frames[frame].data()};
  outputs = {frames[frame].data()};
  return true;
}
void write_frame(unsigned frame) {
  check(frame == frames_written, "frames are written in their order");
  check(near(frames[frame][0], frame * 2.0), "the frame is twice as light");
  ++frames_written;
}

bool read_picture(float* samples) {
  if (pictures_read == frame_count) return false;
  std::fill_n(samples, pixel_count * 4, static_cast<float>(pictures_read++));
  return true;
}
void write_picture(const float* samples) {
  check(near(samples[0], pictures_written * 2.0), "the picture is twice as light");
  ++pictures_written;
}

// Both processes are this one.
int sent = -1;
void send_descriptor(int /*socket*/, int descriptor) {
  sent = dup(descriptor);
}
int receive_descriptor(int /*socket*/) {
  return std::exchange(sent, -1);
}
const void* frame_of_input(std::size_t /*input*/, std::int64_t number) {
  const auto last = static_cast<std::int64_t>(sequence.size()) - 1;
  return sequence[static_cast<std::size_t>(std::clamp<std::int64_t>(number, 0, last))].data();
}
const void* part_of_input(std::size_t /*input*/, int /*frame*/, const ImageRegion& part) {
  std::vector<float> copy;
  for (unsigned row = 0; row < part.height; ++row) {
    const std::size_t first = ((static_cast<unsigned>(part.y) + row) * std::size_t{width} +
                               static_cast<unsigned>(part.x)) *
                              4;
    const float* const from = &sequence[0][first];
    copy.insert(copy.end(), from, from + std::size_t{part.width} * 4);
  }
  parts.push_back(std::move(copy));
  return parts.back().data();
}

int main(int argc, char** argv) try {
  check(argc == 2, "one argument");
  const std::string folder = argv[1];
  blurs(soften_picture);
  Broker broker = open_broker();
  say_who_is_waited_for();
  check(shown.empty(), "nothing runs");
  check_gate(broker);
  const std::string image =
      ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry e() { ret; }\n";
  look_at({image.begin(), image.end()});
  parameters(broker, folder);
  print_memory(broker);
  one_by_one(broker);
  several(broker);
  without_staging(broker);
  on_the_device(broker);
  audio(broker, folder);
  plugins_of_the_pages(broker, folder);
  several_frames(broker, folder);
  tiles(broker, folder);
  discovery(broker);
  broker.close();
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
