#include "cli/arguments.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/limits.h"
#include "base/printable.h"
#include "cli/config_file.h"
#include "cli/json_text.h"

namespace avocet::cli {
namespace {

// One mention of a flag, before mentions are merged.
struct Mention {
  const FlagSpec* flag = nullptr;
  std::string spelling;          // as typed, for messages
  std::vector<std::string> key;  // after the dots
  enum class Place : uint8_t { kSet, kAppend } place = Place::kSet;
  std::vector<std::string> values;
  Source source = Source::kCommandLine;
};

bool IsNegativeNumber(std::string_view text) {
  if (text.size() < 2 || text[0] != '-') return false;
  const std::string_view digits = text.substr(1);
  const bool has_digit = digits.find_first_of("0123456789") != std::string_view::npos;
  return has_digit && digits.find_first_not_of("0123456789.") == std::string_view::npos &&
         std::count(digits.begin(), digits.end(), '.') <= 1;
}

// Whether a word can only be a value, or the MODEL. A text with a space in it is no flag, even behind a dash ("- be brief").
bool IsValue(std::string_view word) {
  if (!word.starts_with('-') || word == "-" || IsNegativeNumber(word)) return true;
  return word.substr(0, word.find('=')).find(' ') != std::string_view::npos;
}

// A flag as typed, taken apart: --name.key.key+=value.
struct Spelling {
  std::string name;  // with its dashes
  std::vector<std::string> key;
  Mention::Place place = Mention::Place::kSet;
  std::optional<std::string> value;  // after '='
};

Result<Spelling> TakeApart(const std::string& word) {
  Spelling spelling;
  std::string_view left = word;
  if (const size_t equals = left.find('='); equals != std::string_view::npos) {
    spelling.value = std::string(left.substr(equals + 1));
    left = left.substr(0, equals);
  }
  const size_t dot = std::min(left.find('.'), left.size());
  spelling.name = std::string(left.substr(0, dot));
  if (word.starts_with("--")) std::replace(spelling.name.begin(), spelling.name.end(), '_', '-');
  if (dot == left.size()) return spelling;

  std::string_view path = left.substr(dot + 1);
  if (path.ends_with('+')) {
    spelling.place = Mention::Place::kAppend;
    path.remove_suffix(1);
  }
  while (true) {
    const size_t end = std::min(path.find('.'), path.size());
    if (end == 0) return Fail(Errc::kInvalidArgument, "{}: a key between the dots is empty", Printable(word));
    spelling.key.emplace_back(path.substr(0, end));
    if (std::cmp_greater(spelling.key.size(), limits::kJsonDepthMax)) {
      return Fail(Errc::kInvalidArgument, "{}: more than {} keys", Printable(word), limits::kJsonDepthMax);
    }
    if (end == path.size()) return spelling;
    path.remove_prefix(end + 1);
  }
}

std::optional<bool> ParseBool(std::string_view text) {
  constexpr auto kYes = std::to_array<std::string_view>({"true", "True", "1", "yes"});
  constexpr auto kNo = std::to_array<std::string_view>({"false", "False", "0", "no"});
  if (std::find(kYes.begin(), kYes.end(), text) != kYes.end()) return true;
  if (std::find(kNo.begin(), kNo.end(), text) != kNo.end()) return false;
  return std::nullopt;
}

class Parser {
 public:
  explicit Parser(Command command) : command_(command) {}

  Result<Arguments> Run(std::span<const std::string> args) {
    if (FindHelp(args)) return std::move(result_);
    AVOCET_TRY_VOID(Scan(args));
    if (result_.version) return std::move(result_);
    if (!config_path_.empty()) AVOCET_TRY_VOID(ReadConfig());
    AVOCET_TRY_VOID(Merge(Source::kConfigFile));
    AVOCET_TRY_VOID(Merge(Source::kCommandLine));
    return std::move(result_);
  }

 private:
  // Help comes before everything, so that a wrong command line can still ask for it.
  bool FindHelp(std::span<const std::string> args) {
    for (const std::string& word : args) {
      if (word == "--") return false;
      if (word == "--help" || word == "-h") result_.help_topic = "";
      if (word.starts_with("--help=")) result_.help_topic = word.substr(7);
      if (result_.help_topic) return true;
    }
    return false;
  }

  Result<void> Scan(std::span<const std::string> args) {
    for (size_t i = 0; i < args.size(); ++i) {
      if (args[i] == "--") {
        for (++i; i < args.size(); ++i) AVOCET_TRY_VOID(AddModel(args[i]));
      } else if (IsValue(args[i])) {
        AVOCET_TRY_VOID(AddModel(args[i]));
      } else {
        AVOCET_TRY_VOID(ScanFlag(args, &i));
      }
    }
    return {};
  }

  Result<void> AddModel(const std::string& word) {
    const FlagSpec* model = FindFlag(command_, "model");
    const auto given = std::find_if(mentions_.begin(), mentions_.end(), [model](const Mention& m) { return m.flag == model; });
    if (given != mentions_.end()) {
      const std::string after = last_bool_.empty() ? "" : fmt::format("; {} takes no value", last_bool_);
      return Fail(Errc::kInvalidArgument, "one MODEL is expected, got '{}' and '{}'{}", Printable(given->values[0]), Printable(word),
                  after);
    }
    mentions_.push_back({.flag = model, .spelling = "MODEL", .key = {}, .values = {word}});
    return {};
  }

  // -O3, -O 3, -O=3 are the optimisation level, -O.key=v is a piece of the compilation config.
  static std::string ExpandOptimization(const std::string& word) {
    if (!word.starts_with("-O") || word.size() == 2 || word[2] == '=') return word;
    if (word[2] == '.') return "-cc" + word.substr(2);
    return "-O=" + word.substr(2);
  }

  // -qVALUE: a one-letter alias with its value attached.
  std::string ExpandAttached(const std::string& word) const {
    if (word.starts_with("--") || word.size() < 3 || word[2] == '=' || word[2] == '.') return word;
    const std::string letter = word.substr(0, 2);
    const std::string whole = word.substr(0, word.find_first_of("=."));
    if (FindAlias(command_, whole) != nullptr || FindAlias(command_, letter) == nullptr) return word;
    return letter + "=" + word.substr(2);
  }

  Result<void> ScanFlag(std::span<const std::string> args, size_t* i) {
    AVOCET_TRY(Spelling spelling, TakeApart(ExpandAttached(ExpandOptimization(args[*i]))));
    if (spelling.name == "--version") {
      result_.version = true;
      return {};
    }
    AVOCET_TRY(Mention mention, Resolve(spelling));
    const FlagSpec& flag = *mention.flag;
    last_bool_.clear();
    if (IsBool(flag)) {
      last_bool_ = spelling.name;
      AVOCET_TRY_VOID(SetBool(spelling, &mention));
    } else if (spelling.value) {
      mention.values = {*spelling.value};
    } else {
      const bool takes_many = flag.kind == FlagKind::kTextList;
      while (*i + 1 < args.size() && IsValue(args[*i + 1]) && (mention.values.empty() || takes_many)) {
        mention.values.push_back(args[++*i]);
      }
    }
    if (mention.values.empty()) {
      return Fail(Errc::kInvalidArgument, "{} needs a value: {}", spelling.name, DescribeValue(flag));
    }
    return Store(std::move(mention));
  }

  Result<void> Store(Mention mention) {
    if (mention.flag->name == "config") {
      if (!config_path_.empty()) return Fail(Errc::kInvalidArgument, "--config is given twice; one file is read");
      config_path_ = mention.values[0];
      return {};
    }
    if (mention.flag->name == "model") {
      if (command_ == Command::kServe) {
        result_.warnings.push_back(fmt::format("write the model right after 'serve': avocet serve {}; --model is kept for old scripts",
                                               Printable(mention.values[0])));
      }
      return AddModel(mention.values[0]);
    }
    mentions_.push_back(std::move(mention));
    return {};
  }

  // Name to flag. --no-x is --x=false.
  Result<Mention> Resolve(const Spelling& spelling) {
    Mention mention{.flag = nullptr, .spelling = spelling.name, .key = spelling.key, .place = spelling.place, .values = {}};
    if (spelling.name.starts_with("--")) {
      const std::string name = spelling.name.substr(2);
      mention.flag = FindFlag(command_, name);
      if (mention.flag == nullptr && name.starts_with("no-")) {
        const FlagSpec* positive = FindFlag(command_, std::string_view(name).substr(3));
        if (positive != nullptr && IsBool(*positive)) {
          mention.flag = positive;
          mention.values = {"false"};
        }
      }
    }
    if (mention.flag == nullptr) mention.flag = FindAlias(command_, spelling.name);
    if (mention.flag == nullptr) return std::unexpected(UnknownFlag(spelling.name));
    if (!mention.key.empty() && mention.flag->kind != FlagKind::kJson) {
      return Fail(Errc::kInvalidArgument, "--{} takes {}, not keys after a dot ({})", mention.flag->name, DescribeValue(*mention.flag),
                  Printable(spelling.key[0]));
    }
    return mention;
  }

  Error UnknownFlag(const std::string& name) const {
    std::string hint;
    if (const std::string suggestion = SuggestFlag(command_, name); !suggestion.empty()) {
      hint = fmt::format("; did you mean {}", suggestion);
    } else if (name.size() > 2) {
      const std::vector<Command> others = CommandsOf(std::string_view(name).substr(2));
      if (!others.empty()) hint = fmt::format("; it is a flag of 'avocet {}'", CommandName(others[0]));
    }
    return Error{Errc::kInvalidArgument,
                 fmt::format("unknown flag {}{}; avocet {} --help lists the flags", Printable(name), hint, CommandName(command_)), name};
  }

  static Result<void> SetBool(const Spelling& spelling, Mention* mention) {
    const bool is_negated = !mention->values.empty();
    if (!spelling.value) {
      if (!is_negated) mention->values = {"true"};
      return {};
    }
    const std::optional<bool> value = ParseBool(*spelling.value);
    if (!value) {
      return Fail(Errc::kInvalidArgument, "{} takes {}, got '{}'", spelling.name, DescribeValue(*mention->flag),
                  Printable(*spelling.value));
    }
    mention->values = {*value != is_negated ? "true" : "false"};
    return {};
  }

  Result<void> ReadConfig() {
    AVOCET_TRY(const std::vector<ConfigEntry> entries, LoadConfigFile(config_path_));
    for (const ConfigEntry& entry : entries) {
      Result<void> added = AddEntry(entry);
      if (!added)
        return std::unexpected(Error{added.error().code, fmt::format("{}: {}", Printable(config_path_), added.error().message), {}});
    }
    return {};
  }

  Result<void> AddEntry(const ConfigEntry& entry) {
    AVOCET_TRY(Spelling spelling, TakeApart("--" + entry.key));
    if (!spelling.key.empty()) return Fail(Errc::kInvalidArgument, "write the key {} as a nested mapping", Printable(entry.key));
    AVOCET_TRY(Mention mention, Resolve(spelling));
    mention.source = Source::kConfigFile;
    mention.spelling = entry.key;
    const FlagSpec& flag = *mention.flag;
    if (flag.name == "config" || flag.name == "help" || flag.name == "version") {
      return Fail(Errc::kInvalidArgument, "{} has no place in the file", Printable(entry.key));
    }
    switch (entry.kind) {
      case ConfigEntry::Kind::kFalse:
        if (!IsBool(flag)) return {};
        spelling.value = "false";
        AVOCET_TRY_VOID(SetBool(spelling, &mention));
        break;
      case ConfigEntry::Kind::kTrue:
        if (!IsBool(flag)) return Fail(Errc::kInvalidArgument, "{} needs a value: {}", Printable(entry.key), DescribeValue(flag));
        AVOCET_TRY_VOID(SetBool(spelling, &mention));
        break;
      case ConfigEntry::Kind::kMapping:
        if (flag.kind != FlagKind::kJson) {
          return Fail(Errc::kInvalidArgument, "{} takes {}, not a mapping", Printable(entry.key), DescribeValue(flag));
        }
        mention.values = entry.values;
        break;
      case ConfigEntry::Kind::kText:
      case ConfigEntry::Kind::kList: AVOCET_TRY_VOID(SetValues(entry, spelling, &mention)); break;
    }
    if (!mention.values.empty()) mentions_.push_back(std::move(mention));
    return {};
  }

  static Result<void> SetValues(const ConfigEntry& entry, Spelling spelling, Mention* mention) {
    const FlagSpec& flag = *mention->flag;
    if (IsBool(flag)) {
      spelling.value = entry.kind == ConfigEntry::Kind::kText ? entry.values[0] : "a list";
      return SetBool(spelling, mention);
    }
    if (entry.kind == ConfigEntry::Kind::kList && flag.kind == FlagKind::kJsonList) {
      Json list = Json::array();
      for (const std::string& value : entry.values) list.push_back(value);
      mention->values = {list.dump()};
      return {};
    }
    if (entry.values.size() > 1 && flag.kind != FlagKind::kTextList) {
      return Fail(Errc::kInvalidArgument, "{} takes one value, got a list of {}", Printable(entry.key), entry.values.size());
    }
    mention->values = entry.values;
    return {};
  }

  // All mentions of one source, flag by flag in order of appearance, over what the other source said before.
  Result<void> Merge(Source source) {
    std::vector<const FlagSpec*> done;
    for (const Mention& mention : mentions_) {
      if (mention.source != source || std::find(done.begin(), done.end(), mention.flag) != done.end()) continue;
      done.push_back(mention.flag);
      std::vector<const Mention*> all;
      for (const Mention& other : mentions_) {
        if (other.source == source && other.flag == mention.flag) all.push_back(&other);
      }
      AVOCET_TRY(std::vector<std::string> values, mention.flag->kind == FlagKind::kJson ? MergeJsonMentions(all) : LastOf(all));
      const auto before = std::find_if(result_.arguments.begin(), result_.arguments.end(),
                                       [&mention](const Argument& argument) { return argument.flag == mention.flag; });
      if (before != result_.arguments.end()) {
        *before = {mention.flag, std::move(values), source};
      } else {
        result_.arguments.push_back({mention.flag, std::move(values), source});
      }
    }
    return {};
  }

  Result<std::vector<std::string>> LastOf(const std::vector<const Mention*>& all) {
    if (all.size() > 1) {
      result_.warnings.push_back(fmt::format("--{} is given {} times; the last one counts", all[0]->flag->name, all.size()));
    }
    return all.back()->values;
  }

  // The whole texts first, then the dotted pieces over them. Pieces on the command line go over the file's object.
  Result<std::vector<std::string>> MergeJsonMentions(const std::vector<const Mention*>& all) {
    const FlagSpec& flag = *all[0]->flag;
    Json object = Json::object();
    const Mention* whole = nullptr;
    for (const Mention* mention : all) {
      if (!mention->key.empty()) continue;
      if (whole != nullptr) Replaced(flag, {});
      whole = mention;
    }
    if (whole != nullptr) {
      AVOCET_TRY(object, ParseObject(flag, whole->values[0]));
    } else if (all[0]->source == Source::kCommandLine) {
      for (const Argument& argument : result_.arguments) {
        if (argument.flag != &flag) continue;
        AVOCET_TRY(object, ParseObject(flag, argument.values[0]));
      }
    }
    Json pieces = Json::object();
    for (const Mention* mention : all) {
      if (mention->key.empty()) continue;
      for (const std::string& path : MergeJson(PieceOf(*mention), Lists::kAppend, &pieces)) Replaced(flag, path);
    }
    MergeJson(pieces, Lists::kReplace, &object);
    return std::vector<std::string>{object.dump(-1, ' ', false, Json::error_handler_t::replace)};
  }

  void Replaced(const FlagSpec& flag, const std::string& path) {
    result_.warnings.push_back(
        fmt::format("--{}{}{} is given more than once; the last one counts", flag.name, path.empty() ? "" : ".", Printable(path)));
  }

  // A JSON flag holds an object; a bare number is the mode of the compilation config, as in vllm serve.
  static Result<Json> ParseObject(const FlagSpec& flag, const std::string& text) {
    Result<Json> json = ParseJson(text);
    if (!json) return Fail(Errc::kInvalidArgument, "--{}: {}", flag.name, json.error().message);
    if (flag.name == "compilation-config" && json->is_number_integer()) {
      Json object = Json::object();
      object["mode"] = *std::move(json);
      return object;
    }
    if (!json->is_object()) {
      return Fail(Errc::kInvalidArgument, "--{} takes a JSON object such as '{{\"key\": 1}}', got {}", flag.name, Printable(text));
    }
    return *std::move(json);
  }

  static Json PieceOf(const Mention& mention) {
    Json value;
    if (mention.place == Mention::Place::kAppend) {
      value = Json::array();
      for (const std::string_view item : SplitWords(mention.values[0], ',')) value.push_back(ParseLooseValue(item));
    } else {
      value = ParseLooseValue(mention.values[0]);
    }
    for (size_t i = mention.key.size(); i-- > 0;) {
      Json object = Json::object();
      object[mention.key[i]] = std::move(value);
      value = std::move(object);
    }
    return value;
  }

  Command command_;
  Arguments result_;
  std::vector<Mention> mentions_;
  std::string config_path_;
  std::string last_bool_;  // the flag just before, if it takes no value: for the message about a stray word
};

}  // namespace

Result<Arguments> ParseArguments(Command command, std::span<const std::string> args) {
  return Parser(command).Run(args);
}

}  // namespace avocet::cli
