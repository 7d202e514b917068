-- All that a trigger sees. Events come as bytes, many at a time, and are read where a handler asks for a field.
-- Lua never calls Python: what handlers want done is noted, and Python takes it when a chunk is over.

local debug, error, ipairs, load, pairs, pcall, rawequal = debug, error, ipairs, load, pairs, pcall, rawequal
local setmetatable, tostring, type = setmetatable, tostring, type
local byte, find, format, gmatch, gsub, lower, sub, unpack = string.byte, string.find, string.format, string.gmatch, string.gsub, string.lower, string.sub, string.unpack
local concat = table.concat
local host, INSTRUCTIONS, SIZE, places, formats, kinds, errors, signals, ends, known_list = ...

local ERROR, holds, nearest = host.ERROR, host.holds, host.nearest
local MAX_HANDLERS, MAX_TESTS, MAX_ACTS, MAX_FAILS = 100, 50, 20, 20
local ENOUGH = 3   -- failures of a handler on one run, after which it is not asked about that run
local MAX_KEYS, MAX_TEXT = 32, 64   -- of the memory of one run and file
local MAX_WORDS = 150   -- characters of a note or an event
local EVENTS_KEPT, ROWS_KEPT = 32, 61   -- a run
local METRIC = "metric"
local SEPARATOR = "\31"
local TEXT_COMPARED = 32   -- bytes of a text that joblensd compares

-- The run and the event at hand.

local runs, at = {}, nil
local chunk, base, kind, now = "", 0, 0, 0
local words = {}   -- kind's number → its word
for word, number in pairs(kinds) do words[number] = word end
words[METRIC] = METRIC

local function run_of(number)
    local found = runs[number]
    if not found then
        found = {number = number, facts = {}, memories = {}, holds = {}, failures = {}, off = {}, rows = {}, recent = {}, row = ""}
        runs[number] = found
    end
    return found
end

-- Fields of an event, by the names that records of sinks have.

local function raw(column)
    local place, form = places[column] + 1, formats[column]
    if type(form) == "string" then return function() return (unpack(form, chunk, base + place)) end end
    local last, of_chunk, of_base = nil, nil, nil   -- several handlers ask for the same
    return function()
        if base == of_base and chunk == of_chunk then return last end
        local text
        if byte(chunk, base + place + form - 1) == 0 then
            text = unpack("z", chunk, base + place)
        else
            text = sub(chunk, base + place, base + place + form - 1)
            local ends = find(text, "\0", 1, true)
            text = ends and sub(text, 1, ends - 1) or text
        end
        if text == "" then text = nil end
        last, of_chunk, of_base = text, chunk, base
        return text
    end
end

local time, pid, parent, program, text = raw "time", raw "pid", raw "parent_pid", raw "program", raw "text"
local status, value, limit, lived = raw "exit_code", raw "value", raw "limit", raw "lived_seconds"

local fields, names = {}, {}
local function field(name, of_kinds, get)
    local wanted = {}
    for word in gmatch(of_kinds, "[%w_]+") do wanted[kinds[word]] = true end
    fields[lower(name)] = function() if wanted[kind] then return get() end end
    names[#names + 1] = name
end
local PROCESSES = "exec exit oom"

fields.kind = function() return words[kind] end
fields.time = function() return kind == METRIC and now or time() end
names[1], names[2] = "Kind", "Time"
field("Pid", PROCESSES .. " traceback function command exception signal refused", function() local id = pid() if id > 0 then return id end end)
field("ParentPid", PROCESSES, function() local id = parent() if id > 0 then return id end end)
field("Program", PROCESSES .. " failed_open signal refused", program)
field("CommandLine", "exec", text)
field("ExitCode", "exit end", function() local s = status() if s >= 0 and s & 127 == 0 then return s >> 8 & 255 end end)
field("ExitSignal", "exit end", function() local s = status() if s >= 0 and s & 127 ~= 0 then return s & 127 end end)
field("CoreDumped", "exit end", function() local s = status() if s >= 0 then return s & 127 ~= 0 and s & 128 ~= 0 end end)
field("LivedSeconds", "exit", lived)
field("MemoryBytes", "oom", value)
field("LimitBytes", "oom", function() local bytes = limit() if bytes >= 0 then return bytes end end)
field("Level", "level", function() return host.level_word(value()) end)
field("LevelNumber", "level", value)
field("Reason", "level death", text)
field("Count", "loss failed_open", value)
field("Where", "loss", text)
field("Artifact", "artifact", text)
field("Bytes", "artifact", value)
field("HangSuspected", "hang", function() return value() == 1 end)
field("HangCause", "hang", text)
field("Path", "failed_open", text)
field("Error", "failed_open refused", function() return errors[status()] or "error " .. status() end)


-- Of a text with several parts, which lines divide, the one with this number; nil if it is empty.
local function part(number)
    return function()
        local whole, from = text(), 1
        if not whole then return end
        for _ = 2, number do
            local line = find(whole, "\n", from, true)
            if not line then return end
            from = line + 1
        end
        local found = sub(whole, from, (find(whole, "\n", from, true) or 0) - 1)
        if found ~= "" then return found end
    end
end

field("Thread", "function exception", function() local id = parent() if id > 0 then return id end end)
field("Function", "function", part(1))
field("Caller", "function", part(2))
field("Arguments", "function", part(3))
field("Result", "function", program)
field("Depth", "function", value)
field("Seconds", "function command", function() local s = lived() if s == s then return s end end)
field("Ended", "function command", function()
    if kind == kinds["function"] then return ends["function"][status() + 1] end
    return ends.command[limit() + 1]
end)
field("Words", "command", text)
field("Script", "command", program)
field("Line", "command", function() local line = value() if line > 0 then return line end end)
field("Status", "command", function() local s = status() if s >= 0 then return s end end)
local first_part = part(1)
field("Exception", "traceback exception", function() return kind == kinds.traceback and text() or first_part() end)
field("From", "exception", part(2))
field("Text", "exception", part(3))
field("Signal", "signal", function() return signals[value()] or "signal " .. value() end)
field("Sender", "signal", text)
field("SenderPid", "signal", function() local id = parent() if id > 0 then return id end end)
field("Address", "refused", text)

local function unknown(what, name, list)
    local set = {}
    for _, each in ipairs(list) do set[each] = true end
    return what .. "." .. tostring(name) .. " is not known here" .. nearest(name, set)
end

local function read_only() error("events and runs can't be changed by a trigger", 2) end

local event = setmetatable({}, {
    __index = function(_, name)
        local get = type(name) == "string" and fields[lower(name)]
        if not get then error(unknown("event", name, names), 2) end
        return get()
    end,
    __newindex = read_only,
})

local function as_table()
    local copy = {}
    for _, name in ipairs(names) do copy[name] = fields[lower(name)]() end
    return copy
end

-- Numbers of the run's last row. Only those that stand in a file as a whole are sent here.

local known, known_names, groups, columns, wanted = {}, {}, {}, {}, {}
for _, path in ipairs(known_list) do
    local small = lower(path)
    known[small], known_names[path] = path, true
    for from = 1, #small do
        if sub(small, from, from) == "." then groups[sub(small, 1, from - 1)] = true end
    end
end

local function learn(source)
    for path in gmatch(source, "[%a_][%w_]*%.[%w_.]+") do
        path = lower(path)
        while path do
            if known[path] and not columns[path] then
                wanted[#wanted + 1] = known[path]
                columns[path] = #wanted
            end
            local dot = find(path, ".", 1, true)
            path = dot and sub(path, dot + 1)
        end
    end
    for word in gmatch(source, "[%a_][%w_]*") do   -- those without a dot
        word = lower(word)
        if known[word] and not columns[word] then
            wanted[#wanted + 1] = known[word]
            columns[word] = #wanted
        end
    end
end

local function number_in(row, column)
    if 8 * column > #row then return nil end
    local found = unpack("<d", row, 8 * column - 7)
    if found == found then return found end
end

local function checked(path, level)
    local small = type(path) == "string" and lower(path) or ""
    if columns[small] then return columns[small] end
    if known[small] then error("write " .. known[small] .. " as a whole, so that it is sent here", level + 1) end
    error(tostring(path) .. " is no number of a job" .. nearest(path, known_names), level + 1)
end

local usages = {}
local function usage_at(path)
    if not usages[path] then
        usages[path] = setmetatable({}, {
            __index = function(_, name)
                if type(name) ~= "string" then return nil end
                local whole = path .. lower(name)
                if groups[whole] and not columns[whole] then return usage_at(whole .. ".") end
                return number_in(at.row, checked(whole, 2))
            end,
            __newindex = read_only,
        })
    end
    return usages[path]
end

-- What handlers want done. A record each; texts are plain ASCII from here on, so that they are what they seem.

local acts, dropped, handler_at_hand = {}, 0, 0

local function clean(given, most)
    return (gsub(sub(given, 1, most), "[^\32-\126]", "?"))
end

local function act(verb, first, second)
    if #acts >= MAX_ACTS then
        dropped = dropped + 1
        return
    end
    acts[#acts + 1] = concat({tostring(at.number), tostring(handler_at_hand), verb, first or "", second or ""}, SEPARATOR)
end

local function words_of(given, what)
    if type(given) == "number" then given = tostring(given) end
    if type(given) ~= "string" or given == "" then error(what .. " takes a text, not a " .. type(given), 3) end
    return clean(given, MAX_WORDS)
end

local methods = {}
function methods.raise(_, level, seconds, reason)
    local word = host.level_word(level)
    if not word or word == "off" then error("raise takes a level: basic, io, profile or trace", 2) end
    if type(seconds) ~= "number" or not (seconds >= 1 and seconds <= 86400) then
        error("raise takes seconds from 1 to 86400 after the level: it has an end", 2)
    end
    act("raise", word .. " " .. format("%.3f", seconds), reason and words_of(reason, "raise's reason") or "")
end
function methods.evidence() act "evidence" end
function methods.tag() act "tag" end
function methods.note(_, given) act("note", words_of(given, "note")) end
function methods.send(_, given, options)
    act("send", words_of(given, "send"), type(options) == "table" and options.mail and "mail" or "")
end
function methods.ago(_, path, seconds)
    local column = checked(path, 2)
    if type(seconds) ~= "number" or not (seconds >= 1 and seconds < ROWS_KEPT) then error("ago takes seconds from 1 to 60", 2) end
    for back = 0, ROWS_KEPT - 1 do
        local row = at.rows[(at.row_count - back) % ROWS_KEPT]
        if not row then return nil end
        if now - row.time >= seconds then return number_in(row.bytes, column) end
    end
end
function methods.events(_, seconds)
    local list, of_now = {}, {chunk, base, kind}
    chunk = ""
    for back = 0, EVENTS_KEPT - 1 do
        local bytes = at.recent[((at.event_count or 0) - back) % EVENTS_KEPT]
        if not bytes then break end
        chunk, base, kind = bytes, 0, unpack("<I4", bytes, places.kind + 1)
        if type(seconds) == "number" and now - time() > seconds then break end
        list[#list + 1] = as_table()
    end
    chunk, base, kind = of_now[1], of_now[2], of_now[3]
    return list
end

local FACTS = {"Job", "Owner", "Slot", "Name", "Level", "usage"}
for name in pairs(methods) do FACTS[#FACTS + 1] = name end

local usage = usage_at ""
local function fact(name)
    if name == "level" then return at.level end
    return at.facts[name]
end

local run = setmetatable({}, {
    __index = function(_, name)
        if methods[name] then return methods[name] end
        local small = type(name) == "string" and lower(name)
        if small == "usage" then return usage end
        if small == "level" or small == "job" or small == "owner" or small == "slot" or small == "name" then return fact(small) end
        error(unknown("run", name, FACTS), 2)
    end,
    __newindex = read_only,
})

-- The memory of a run and a file: a few plain values. What is one too many takes the place of the oldest.

local function is_plain(given)
    local sort = type(given)
    return sort == "number" or sort == "boolean" or sort == "string"
end

local function new_memory()
    local values, order, first = {}, {}, 1
    return setmetatable({}, {
        __index = function(_, key)
            if type(key) == "string" then key = sub(key, 1, MAX_TEXT) end
            return values[key]
        end,
        __newindex = function(_, key, given)
            if not is_plain(key) or key ~= key then error("the memory's keys are texts and numbers", 2) end
            if not rawequal(given, nil) and not is_plain(given) then
                error("the memory keeps texts, numbers and booleans, not a " .. type(given), 2)
            end
            if type(key) == "string" then key = sub(key, 1, MAX_TEXT) end
            if type(given) == "string" then given = sub(given, 1, MAX_TEXT) end
            if rawequal(values[key], nil) then
                if rawequal(given, nil) then return end
                if #order - first + 1 >= MAX_KEYS then
                    values[order[first]] = nil
                    first = first + 1
                end
                order[#order + 1] = key
                if first > MAX_KEYS then   -- the list goes on from its beginning
                    local left = {}
                    for i = first, #order do left[#left + 1] = order[i] end
                    order, first = left, 1
                end
            elseif rawequal(given, nil) then
                local left = {}
                for i = first, #order do
                    if order[i] ~= key then left[#left + 1] = order[i] end
                end
                order, first = left, 1
            end
            values[key] = given
        end,
        __len = function() return #order - first + 1 end,
    })
end

local function memory_of(file)
    if not at.memories[file] then at.memories[file] = new_memory() end
    return at.memories[file]
end

-- Handlers: what files declare.

local handlers, by_kind, on_metric = {}, {}, {}
local loading, keeps_rows, keeps_events = nil, false, false

local function reader(handler_kind, key)
    local root, rest = key, nil
    local dot = find(key, ".", 1, true)
    if dot then root, rest = lower(sub(key, 1, dot - 1)), sub(key, dot + 1) end
    if root == "run" and rest and find("job owner slot name level", lower(rest), 1, true) then
        local name = lower(rest)
        return function() return fact(name) end
    end
    if root == "usage" and rest then key, handler_kind = rest, METRIC end
    if handler_kind == METRIC then
        local column = checked(key, 4)
        return function() return number_in(at.row, column) end
    end
    local get = fields[lower(key)]
    if not get then error(unknown("event", key, names), 4) end
    return get
end

local function holder(test)
    local sort = type(test)
    if sort == "string" then
        local wanted = lower(test)
        return function(value) return type(value) == "string" and #value == #wanted and lower(value) == wanted end
    end
    if sort == "function" then return test end
    return function(value) return holds(test, value) end
end

-- Tests of fields that joblensd can make before it sends an event: texts, numbers and booleans that are known now.
-- They are told as lines of field, name of the test and values. A list of the file's own may change, so it is not.

local MAX_VALUES, EXACT = 256, 2.0 ^ 53

local function told_value(value)
    local sort = type(value)
    if sort == "string" and not find(value, "[^\32-\126]") then return "t" .. sub(value, 1, TEXT_COMPARED) end
    if sort == "boolean" then return value and "b1" or "b0" end
    if sort == "number" and value > -EXACT and value < EXACT then return "n" .. format("%.17g", value) end
end

local function told_test(key, test)
    local data = host.data(test) or (type(test) ~= "function" and type(test) ~= "table" and {"one_of", test})
    if not data or not fields[lower(key)] or #data > MAX_VALUES then return nil end
    local told = {lower(key), data[1]}
    for i = 2, #data do
        told[#told + 1] = told_value(data[i])
        if #told <= i then return nil end
    end
    return concat(told, SEPARATOR)
end

local function tests_of(handler_kind, filter)
    local tests, runs_code = {}, false
    for key, test in pairs(filter) do
        if type(key) ~= "string" then error("a filter has a test without a field's name", 3) end
        if #tests >= MAX_TESTS then error("a filter has at most " .. MAX_TESTS .. " tests", 3) end
        tests[#tests + 1] = {text = key, get = reader(handler_kind, key), holds = holder(test), told = told_test(key, test)}
        runs_code = runs_code or host.runs_code(test)
    end
    return tests, runs_code
end

local function on(what, filter, call)
    if not loading then error("on is for the file, not for its handlers", 2) end
    if rawequal(call, nil) then filter, call = {}, filter end
    if type(what) ~= "string" or not (kinds[what] or what == METRIC) then
        local all = {metric = true}
        for word in pairs(kinds) do all[word] = true end
        error("on takes a kind of event, not " .. host.shown(what) .. nearest(what, all), 2)
    end
    if type(filter) ~= "table" then error("on's filter is a table of tests, not a " .. type(filter), 2) end
    if type(call) ~= "function" then error("on's last argument is a function(event, run, memory)", 2) end
    if #handlers >= MAX_HANDLERS then error("there are more than " .. MAX_HANDLERS .. " handlers", 2) end
    local tests, runs_code = tests_of(what, filter)
    local metrics, told = {}, {}
    for _, test in ipairs(tests) do
        metrics[#metrics + 1] = test.text
        told[#told + 1] = not runs_code and test.told or nil
    end
    handlers[#handlers + 1] = {
        index = #handlers + 1, file = loading, line = debug.getinfo(2, "l").currentline, kind = what, tests = tests,
        runs_code = runs_code, call = call, asks = concat(metrics, "\n"), told = concat(told, "\n"),
    }
end

local bounded = host.bounded_by(INSTRUCTIONS)
-- A file may take longer once: to find the nearest name to a wrong one does.
local loaded = host.bounded_by(100 * INSTRUCTIONS)

-- As the policies', and as quick for many names as for one.
local function one_of(list)
    if type(list) ~= "table" then error("one_of takes a table, not a " .. type(list), 2) end
    local texts, others, data = {}, {}, {"one_of"}
    for _, one in ipairs(list) do
        data[#data + 1] = one
        if type(one) == "string" then texts[lower(one)], texts[one] = true, true else others[one] = true end
    end
    return host.ours(function(value)
        if type(value) == "string" then return texts[value] or texts[lower(value)] or false end
        return not rawequal(value, nil) and others[value] or false
    end, data)
end

local function arrange()
    by_kind, on_metric = {}, {}
    for _, handler in ipairs(handlers) do
        local number = kinds[handler.kind]
        if not number then
            on_metric[#on_metric + 1] = handler
        else
            by_kind[number] = by_kind[number] or {}
            by_kind[number][#by_kind[number] + 1] = handler
        end
    end
end

local triggers = {}

-- true, or nil and what is wrong.
function triggers.load(file, source)
    local before, ok = #handlers, true
    local compiled, mistake = load(source, "@" .. file, "t", host.environment {on = on, one_of = one_of})
    if compiled then
        learn(source)
        loading = file
        ok, mistake = loaded(compiled)
        loading = nil
        if ok and #handlers == before then
            ok, mistake = false, file .. ':1: declares no trigger: write on("exec", function(event, run, memory) ... end)'
        end
    else
        ok, mistake = false, host.advised(mistake)
    end
    if not ok then
        for i = #handlers, before + 1, -1 do handlers[i] = nil end
        arrange()
        return nil, host.told(mistake)
    end
    keeps_rows = keeps_rows or find(source, ":ago", 1, true) ~= nil
    keeps_events = keeps_events or find(source, ":events", 1, true) ~= nil
    arrange()
    return true
end

function triggers.count() return #handlers end

-- What run:events looks at is all that handlers are told of, so nothing may be left out then.
function triggers.handler(index)
    local handler = handlers[index]
    return handler.file, handler.line, handler.kind, handler.asks, keeps_events and "" or handler.told
end

function triggers.wanted() return concat(wanted, "\n") end

-- Handlers of this file are not asked any more.
function triggers.aside(file)
    for _, handler in ipairs(handlers) do handler.aside = handler.aside or handler.file == file end
end

-- Asking them.

local fails, worked = {}, {}

local function fail(handler, problem)
    local count = (at.failures[handler] or 0) + 1
    at.failures[handler] = count
    at.off[handler] = count >= ENOUGH
    if #fails < MAX_FAILS then
        fails[#fails + 1] = concat({tostring(at.number), tostring(handler.index), clean(host.told(problem), 200)}, SEPARATOR)
    end
end

local function passes(handler)
    local tests = handler.tests
    for i = 1, #tests do
        local test = tests[i]
        local answer = test.holds(test.get())
        if not answer or rawequal(answer, ERROR) then return false end
    end
    return true
end

local function call(handler)
    handler.call(event, run, memory_of(handler.file))
end

local function pass_and_call(handler)
    if passes(handler) then handler.call(event, run, memory_of(handler.file)) end
end

local function ask(handler, how)
    handler_at_hand = handler.index
    local ok, problem = bounded(how, handler)
    if ok then worked[handler.file] = true else fail(handler, problem) end
end

-- `count` events of one run.
function triggers.feed(number, bytes, count, clock)
    at, now = run_of(number), clock
    for i = 0, count - 1 do
        chunk, base = bytes, i * SIZE
        kind = unpack("<I4", chunk, base + places.kind + 1)
        local wanting = by_kind[kind]
        if wanting then
            if keeps_events then
                at.event_count = (at.event_count or -1) + 1
                at.recent[at.event_count % EVENTS_KEPT] = sub(bytes, base + 1, base + SIZE)
            end
            for j = 1, #wanting do
                local handler = wanting[j]
                if not handler.aside and not at.off[handler] then
                    if handler.runs_code then ask(handler, pass_and_call)
                    elseif passes(handler) then ask(handler, call) end
                end
            end
        end
    end
end

-- The numbers of one run. A handler with a filter is called when the filter begins to hold.
function triggers.row(number, level, bytes, clock)
    at, now, kind, chunk = run_of(number), clock, METRIC, ""
    at.level, at.row = level, bytes
    if keeps_rows then
        at.row_count = (at.row_count or -1) + 1
        at.rows[at.row_count % ROWS_KEPT] = {time = clock, bytes = bytes}
    end
    for j = 1, #on_metric do
        local handler = on_metric[j]
        if not handler.aside and not at.off[handler] then
            local ok, answer = true, nil
            if handler.runs_code then ok, answer = bounded(passes, handler) else answer = passes(handler) end
            if not ok then
                fail(handler, answer)
            else
                if answer and (#handler.tests == 0 or not at.holds[handler]) then ask(handler, call) end
                at.holds[handler] = answer
            end
        end
    end
end

function triggers.introduce(number, job, owner, slot, name, level)
    local found = run_of(number)
    found.facts, found.level = {job = job, owner = owner, slot = slot, name = name}, level
end

function triggers.forget(number) runs[number] = nil end

-- What was to be done and what failed since the last call, and the files that did not fail.
function triggers.take()
    local done, failed, files, lost = concat(acts, "\n"), concat(fails, "\n"), {}, dropped
    for file in pairs(worked) do files[#files + 1] = file end
    acts, fails, worked, dropped = {}, {}, {}, 0
    return done, failed, concat(files, "\n"), lost
end

function triggers.time(hour, minute, weekday) host.begin({}, hour, minute, weekday) end

return triggers
