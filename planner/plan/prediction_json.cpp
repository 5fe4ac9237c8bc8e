#include "planner/plan/prediction_json.h"

#include <cmath>

#include "planner/core/error.h"
#include "planner/core/json.h"
#include "planner/plan/prediction_fields.h"

namespace braid {

namespace {

// JSON has no infinity: it would be written as null, which no reader takes back.
Json write(double x) {
  internal_check(std::isfinite(x), "only finite numbers go into a plan file");
  return x;
}
Json write(Seconds time) { return write(time.value()); }
Json write(Bytes size) { return size.value(); }

// A term, in seconds.
void read(const JsonValue& value, double& x) { x = value.number(limits::kTimeTerm); }
void read(const JsonValue& value, Seconds& time) {
  time = Seconds(value.number(limits::kPredictedTime));
}
void read(const JsonValue& value, Bytes& size) {
  size = Bytes(value.integer(limits::kPlannedBytes));
}

template <class Owner, class Fields>
Json write_fields(const Owner& owner, const Fields& fields) {
  Json json = Json::object();
  for (const auto& field : fields) json[field.name] = write(owner.*field.member);
  return json;
}

template <class Owner, class Fields>
void read_fields(JsonObject object, const Fields& fields, Owner& owner) {
  for (const auto& field : fields) read(object.at(field.name), owner.*field.member);
  object.finish();
}

Json write_stage(const StagePrediction& stage) {
  Json json;
  json["times"] = write_fields(stage.times, kStageTimeFields);
  json["terms"] = write_fields(stage.terms, kTimeTermFields);
  for (const TimeTermField& field : kOptionalTermFields)
    if (stage.terms.*field.member != 0)
      json["terms"][field.name] = write(stage.terms.*field.member);
  json["redistribute"] = write(stage.redistribute);
  json["memory"] = write_fields(stage.memory, kMemoryFields);
  for (const MemoryField& field : kOptionalMemoryFields)
    if (stage.memory.*field.member != Bytes())
      json["memory"][field.name] = write(stage.memory.*field.member);
  json["in_flight"] = write(stage.in_flight);
  json["messages"] = write(stage.messages);
  json["slack"] = write(stage.slack);
  json["overhead"] = write(stage.overhead);
  json["peak"] = write(stage.peak);
  json["budget"] = write(stage.budget);
  return json;
}

StagePrediction read_stage(const JsonValue& value) {
  JsonObject object(value);
  StagePrediction stage;
  JsonObject times = object.object("times");
  for (const StageTimeField& field : kStageTimeFields) {
    const bool gives_back = field.member == &StageTimes::reduce;
    stage.times.*field.member = Seconds(
        times.at(field.name).number(gives_back ? limits::kTimeTerm : limits::kPredictedTime));
  }
  times.finish();
  JsonObject terms = object.object("terms");
  for (const TimeTermField& field : kOptionalTermFields)
    if (const auto term = terms.find(field.name)) read(*term, stage.terms.*field.member);
  read_fields(std::move(terms), kTimeTermFields, stage.terms);
  read(object.at("redistribute"), stage.redistribute);
  JsonObject memory = object.object("memory");
  for (const MemoryField& field : kOptionalMemoryFields)
    if (const auto term = memory.find(field.name)) read(*term, stage.memory.*field.member);
  read_fields(std::move(memory), kMemoryFields, stage.memory);
  stage.in_flight = object.at("in_flight").number(limits::kInFlight);
  read(object.at("messages"), stage.messages);
  read(object.at("slack"), stage.slack);
  read(object.at("overhead"), stage.overhead);
  read(object.at("peak"), stage.peak);
  read(object.at("budget"), stage.budget);
  object.finish();
  return stage;
}

}  // namespace

Json to_json(const Prediction& prediction) {
  Json json;
  json["iteration"] = write(prediction.iteration);
  json["samples_per_second"] = write(prediction.samples_per_second);
  json["stages"] = Json::array();
  for (const StagePrediction& stage : prediction.stages)
    json["stages"].push_back(write_stage(stage));
  return json;
}

Prediction prediction_from_json(const JsonValue& value) {
  JsonObject object(value);
  Prediction prediction;
  const JsonValue iteration = object.at("iteration");
  read(iteration, prediction.iteration);
  if (prediction.iteration == Seconds())
    iteration.fail("an iteration cannot take no time",
                   "leave \"prediction\" and \"certificate\" out: braid price makes them");
  prediction.samples_per_second = object.number("samples_per_second", limits::kSamplesPerSecond);
  for (const JsonValue& stage : object.array("stages"))
    prediction.stages.push_back(read_stage(stage));
  object.finish();
  return prediction;
}

Json to_json(const Certificate& certificate) {
  Json json;
  json["algorithm"] = certificate.algorithm;
  json["lower_bound"] = write(certificate.lower_bound);
  json["physics_bound"] = write(certificate.physics_bound);
  return json;
}

Certificate certificate_from_json(const JsonValue& value) {
  JsonObject object(value);
  Certificate certificate;
  certificate.algorithm = object.string("algorithm");
  read(object.at("lower_bound"), certificate.lower_bound);
  read(object.at("physics_bound"), certificate.physics_bound);
  object.finish();
  return certificate;
}

}  // namespace braid
