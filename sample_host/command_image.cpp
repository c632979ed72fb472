// SPDX-License-Identifier: Apache-2.0
// sample_host image: a picture, or a sequence of pictures, through a graph.
//
// Frames are read ahead and written behind on threads of their own, while this thread keeps up to
// --jobs of them in the graph. So there are about three times as many in memory.
#include <algorithm>
#include <atomic>
#include <deque>
#include <exception>
#include <future>
#include <memory>
#include <optional>
#include <thread>

#include "commands.hpp"
#include "frame_store.hpp"
#include "logging.hpp"
#include "picture.hpp"
#include "picture_frames.hpp"
#include "progress.hpp"
#include "report.hpp"
#include "report_output.hpp"
#include "results_file.hpp"
#include "run_files.hpp"
#include "session.hpp"
#include "stopwatch.hpp"
#include "tiles.hpp"
#include "trace_output.hpp"

namespace ctxbroker::sample_host {

namespace {

class Pipeline {
 public:
  Pipeline(const Options& options, const GraphPlan& plan, const std::vector<Frame>& frames)
      : options_(options),
        plan_(plan),
        frames_(frames),
        store_(options, plan),
        jobs_(static_cast<std::size_t>(options.jobs)),
        // More readers or writers than cores only take memory.
        files_(std::min<std::size_t>(jobs_, std::max(std::thread::hardware_concurrency(), 1U))),
        session_(options, plan, Media::image) {
    halves_ = session_.takes_halves();
    automation_ = session_.automation(1);
    for (std::size_t i = 0; i < plan.outputs.size(); ++i) {
      const bool is_results = plan.outputs[i].is_results();
      result_bytes_.push_back(is_results ? session_.result_bytes(i) : 0);
      results_.push_back(is_results ? std::make_unique<ResultsFile>(plan.outputs[i]) : nullptr);
    }
  }

  // Does all frames. After an exception, the frames before the one that it names are written.
  void run() {
    const Amount amount{static_cast<double>(frames_.size()), "frames/s"};
    progress_.emplace("processing", options_.verbosity >= 0,
                      frames_.size() > 1 ? std::optional(amount) : std::nullopt);
    for (const Frame& frame : frames_) {
      if (failure_) break;
      attempt(frame, [&] { submit(next_picture()); });
      if (in_graph_.size() == jobs_) finish_oldest();
    }
    while (!in_graph_.empty()) finish_oldest();
    while (!writing_.empty()) end_oldest_write();
    progress_.reset();
    if (failure_) std::rethrow_exception(failure_);
    for (const auto& file : results_) {
      if (file != nullptr) file->finish();
    }
    for (const auto& file : results_) {
      if (file != nullptr) file->commit();
    }
  }

  Session& session() { return session_; }
  // The files are the last frame's.
  const Report& report() const noexcept { return report_; }

 private:
  // Nothing new is begun after a failure, but what was begun is ended. So an earlier frame can fail
  // later, and its failure counts then.
  template <typename Step>
  void attempt(const Frame& frame, const Step& step) {
    try {
      step();
    } catch (...) {
      if (failure_ && failed_ < frame.position) return;
      failure_ = std::current_exception();
      failed_ = frame.position;
    }
  }

  void read_ahead() {
    while (reading_.size() < files_ && next_ < frames_.size()) {
      reading_.push_back(std::async(std::launch::async, [this, &frame = frames_[next_]] {
        return in_frame(frame, [&] {
          Picture picture(frame, plan_, options_, halves_, store_);
          if (is_needed_known_) picture.read_neighbours(needed_, store_);
          return picture;
        });
      }));
      ++next_;
    }
  }

  Picture next_picture() {
    read_ahead();
    std::future<Picture> read = std::move(reading_.front());
    reading_.pop_front();
    Picture picture = read.get();
    read_ahead();
    return picture;
  }

  void submit(Picture picture) {
    in_frame(picture.frame(), [&] { picture.open_outputs(); });
    prepare(picture);
    learn_needs();
    in_frame(picture.frame(), [&] { picture.read_neighbours(needed_, store_); });
    prepare(picture);  // again, because its samples may be others now
    if (in_graph_.empty()) busy_.emplace();
    JobInfo job;
    job.width = picture.width();
    job.height = picture.height();
    job.position = picture.frame().position;
    report_.inputs = picture.input_facts();
    report_.outputs = picture.output_facts();
    for (const auto& [point, value] : values_at(automation_, job.position)) {
      session_.engine().set_parameter(
          point->node, session_.description(point->node).parameters[point->parameter].id, value);
    }
    // How much a tile needs around it, the graph says only when the parameters are set.
    if (options_.tile) {
      in_frame(picture.frame(), [&] {
        activate_for(largest_part(session_.engine(), job, *options_.tile), picture.samples());
      });
    }
    const JobBuffers buffers = picture.buffers(result_bytes_, options_.move_on_fault);
    const Frame& oldest = in_graph_.empty() ? picture.frame() : in_graph_.front().frame();
    in_frames(oldest, picture.frame(), picture.frame(), [&] {
      try {
        if (options_.tile) {
          session_.run_or_move([&] {
            render_tiles(session_.engine(), buffers, job, *options_.tile,
                         pixel_bytes(plan_, formats_.samples));
          });
        } else {
          picture.job = session_.submit(buffers, job);
        }
      } catch (const Error& error) {
        // A plug-in that fails harms no other job. After anything else, the results of those in the
        // graph may be undefined.
        if (error.kind() != ErrorKind::plugin_failed) in_graph_.clear();
        throw;
      }
    });
    store_.forget_before(picture.frame().position + 1 + first_needed_);
    in_graph_.push_back(std::move(picture));
    session_.engine().poll();
  }

  // The graph says which frames it needs, and they stay the same. Later pictures are read with
  // them.
  void learn_needs() {
    if (is_needed_known_) return;
    needed_ = session_.engine().job_inputs();
    for (const JobInput& input : needed_) first_needed_ = std::min(first_needed_, input.frame);
    if (needed_.size() == plan_.inputs.size()) store_.keep_nothing();
    is_needed_known_ = true;
  }

  // Frames may differ in size and in samples: a larger one than before, or one of other samples,
  // activates the plug-ins anew.
  void prepare(Picture& picture) {
    if (!sizes_) session_.save_preset(options_);
    if (!halves_) picture.use_floats();
    Size needed{picture.width(), picture.height()};
    if (options_.tile) {
      needed = {std::min(needed.width, options_.tile->width),
                std::min(needed.height, options_.tile->height)};
    }
    activate_for(needed, picture.samples());
  }

  void activate_for(const Size& needed, SampleType samples) {
    ActivationSizes sizes = sizes_.value_or(ActivationSizes());
    if (sizes_ && formats_.samples == samples && sizes.max_width >= needed.width &&
        sizes.max_height >= needed.height && !session_.wants_restart()) {
      return;
    }
    while (!in_graph_.empty()) finish_oldest();
    sizes.max_width = std::max(sizes.max_width, needed.width);
    sizes.max_height = std::max(sizes.max_height, needed.height);
    formats_ = {image_channels(plan_.inputs), image_channels(plan_.outputs), samples};
    session_.activate(sizes, formats_);
    sizes_ = sizes;
  }

  void finish_oldest() {
    const auto picture = std::make_shared<Picture>(std::move(in_graph_.front()));
    in_graph_.pop_front();
    const Frame& frame = picture->frame();
    const Frame& newest = in_graph_.empty() ? frame : in_graph_.back().frame();
    attempt(frame, [&] {
      try {
        in_frames(frame, newest, frame, [&] {
          if (!options_.tile) session_.finish(picture->job);
        });
      } catch (...) {
        in_graph_.clear();  // their results are undefined, too
        throw;
      }
      for (std::size_t i = 0; i < results_.size(); ++i) {
        if (results_[i] == nullptr) continue;
        results_[i]->add(frame.position, 1, picture->results(i), result_bytes_[i]);
      }
      if (writing_.size() == files_) end_oldest_write();
      writing_.push_back({&frame, std::async(std::launch::async, [this, picture, &frame] {
                            in_frame(frame, [&] { picture->write(options_); });
                          })});
    });
    if (!in_graph_.empty()) return;
    report_.process_seconds += busy_->seconds();
    busy_.reset();
  }

  void end_oldest_write() {
    Write oldest = std::move(writing_.front());
    writing_.pop_front();
    attempt(*oldest.frame, [&] { oldest.end.get(); });
    if (frames_.size() == 1) return;
    progress_->set(static_cast<double>(++written_) / static_cast<double>(frames_.size()));
  }

  struct Write {
    const Frame* frame;
    std::future<void> end;
  };

  const Options& options_;
  const GraphPlan& plan_;
  const std::vector<Frame>& frames_;
  FrameStore store_;
  std::vector<JobInput> needed_;  // see Graph::job_inputs; written once
  std::atomic<bool> is_needed_known_{false};
  int first_needed_ = 0;            // the distance to the first frame
  const std::size_t jobs_, files_;  // the most in the graph; being read, and being written
  std::size_t next_ = 0;            // to be read
  std::size_t written_ = 0;
  std::optional<Progress> progress_;
  std::exception_ptr failure_;
  std::int64_t failed_ = 0;  // the frame of the failure
  Session session_;
  std::optional<ActivationSizes> sizes_;  // of the last activation
  std::vector<AutomationPoint> automation_;
  std::vector<std::uint32_t> result_bytes_;  // of each output; 0: it is an image
  std::vector<std::unique_ptr<ResultsFile>> results_;
  EndFormats formats_;              // likewise
  std::atomic<bool> halves_{true};  // nobody knows better yet than that plug-ins take them
  Report report_;
  std::optional<Stopwatch> busy_;  // since the graph has had a job
  std::deque<Picture> in_graph_;
  std::deque<std::future<Picture>> reading_;  // last: they end first
  std::deque<Write> writing_;
};

}  // namespace

ExitCode run_image(const Options& options) {
  const Stopwatch stopwatch;
  const GraphPlan plan = make_plan(options);
  const std::vector<Frame> frames = list_frames(options, plan);
  if (frames.empty()) {
    log(Severity::warning, "image",
        "all frames exist already; nothing was done, and there is no report");
    return ExitCode::ok;
  }
  RunFiles files(options, plan);
  for (const Frame& frame : frames) {
    in_frame(frame, [&] { files.check_ports(frame.inputs, frame.outputs); });
  }
  ReportOutput report_output(options);
  TraceOutput trace_output(options);
  Pipeline pipeline(options, plan, frames);
  files.check_plugins(pipeline.session());
  pipeline.run();
  Report report = pipeline.report();
  report.command = "image";
  report.jobs_in_flight = options.jobs;
  if (options.frames) {
    const std::size_t all = options.frames->last - options.frames->first + 1;
    report.frames = FrameFacts{*options.frames, frames.size(), all - frames.size()};
  }
  describe_session(pipeline.session(), report);
  report.wall_seconds = stopwatch.seconds();
  trace_output.write(pipeline.session().engine());
  report_output.write(report);
  return ExitCode::ok;
}

}  // namespace ctxbroker::sample_host
