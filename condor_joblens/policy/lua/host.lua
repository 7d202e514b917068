-- All that a policy sees. Lua never calls Python: what a rule needs of the job and does not find in `values`
-- ends it with MISS; Python looks it up, and asks the rule again.

local debug, error, ipairs, load, pairs, pcall = debug, error, ipairs, load, pairs, pcall
local next, rawequal, rawlen, setmetatable, tostring, type = next, rawequal, rawlen, setmetatable, tostring, type
local byte, find, format, gmatch, lower, sub = string.byte, string.find, string.format, string.gmatch, string.lower, string.sub
local match, tointeger = string.match, math.tointeger
local INSTRUCTIONS, regex = ...

local MAX_RULES, MAX_NAME, MAX_REASON, MAX_TRACE = 200, 60, 120, 1000
local LEVELS = {off = true, basic = true, io = true, profile = true, trace = true}
local NUMBERED = {[0] = "off", "basic", "io", "profile", "trace"}
local DAYS = {sun = 0, mon = 1, tue = 2, wed = 3, thu = 4, fri = 5, sat = 6}

-- ClassAd's undefined is nil, and behaves like it: what is computed with it is undefined, no comparison with it
-- holds. ClassAd's error is ERROR, and does likewise.

local ABSENT, GROUP, MISS, ERROR = {}, {}, {}, {}

local function give(value)
    local function answer() return value end
    local function combined(a, b)
        if rawequal(a, ERROR) or rawequal(b, ERROR) then return ERROR end
        if rawequal(a, nil) or rawequal(b, nil) then return nil end
        return value
    end
    local metatable = {__index = answer, __call = answer, __len = answer, __unm = combined, __concat = combined}
    for name in gmatch("add sub mul div mod pow idiv band bor bxor shl shr bnot", "%w+") do
        metatable["__" .. name] = combined
    end
    function metatable.__lt() return false end
    metatable.__le = metatable.__lt
    return metatable
end

-- What an ad has instead of what a policy expects is ClassAd's error as well: no ad makes a policy fail.
local function errs()
    local metatable = give(ERROR)
    function metatable.__newindex() error("this can't be changed", 2) end
    return metatable
end

local error_metatable = errs()
function error_metatable.__tostring() return "error" end
setmetatable(ERROR, error_metatable)
debug.setmetatable(nil, give(nil))
debug.setmetatable(true, errs())
debug.setmetatable(0, errs())

-- The nearest right name to a wrong one, where one is near.

local function distance(a, b)
    local row = {}
    for j = 0, #b do row[j] = j end
    for i = 1, #a do
        local diagonal = row[0]
        row[0] = i
        for j = 1, #b do
            local cost = byte(a, i) == byte(b, j) and 0 or 1
            diagonal, row[j] = row[j], math.min(row[j] + 1, row[j - 1] + 1, diagonal + cost)
        end
    end
    return row[#b]
end

local function nearest(wrong, names)
    if type(wrong) ~= "string" or #wrong > 40 then return "" end
    local best, least = nil, 1 + #wrong // 2
    for name in pairs(names) do
        local d = distance(lower(wrong), lower(name))
        if d < least or d == least and best and name < best then best, least = name, d end
    end
    return best and ": did you mean " .. best .. "?" or ""
end

local function strict(names, what)
    return setmetatable(names, {__index = function(_, name)
        error(what .. tostring(name) .. " is not known here" .. nearest(name, names), 2)
    end})
end

-- The job at hand.

local values, reads, missing = {}, nil, nil
local loading   -- the file that is being read: there is no job then
local clock = {hour = 0, minute = 0, weekday = 0, sample = 0}

local ROOTS = {j = "job.", s = "slot.", n = "node.", u = "usage."}

local function not_yet(key)
    local level, info = 2, nil
    repeat
        level = level + 1
        info = debug.getinfo(level, "Sl")
    until not info or info.source == "@" .. loading
    local root = ROOTS[sub(key, 1, 1)]
    local name = root and root .. sub(key, 3) or sub(key, 1, 1) == "e" and "job:eval" or "seen"
    error(format("%s:%d: %s is known only when a rule is asked: write it in a function(job, slot, node, usage)%s",
        loading, info and info.currentline or 1, name, root and ', or as { ["' .. name .. '"] = ... }' or ""), 0)
end

local function need(key)
    local value = values[key]
    if rawequal(value, nil) then
        if loading then not_yet(key) end
        missing = key
        error(MISS, 0)
    end
    if reads then reads[#reads + 1] = key end
    if rawequal(value, ABSENT) then return nil end
    return value
end

local function read_only() error("the job can't be changed by a policy", 2) end

local view

-- Lists, and nested ads without regard to case.
local function view_of(raw)
    local metatable = errs()
    function metatable.__index(_, key) return view(raw[type(key) == "string" and lower(key) or key]) end
    function metatable.__len() return rawlen(raw) end
    function metatable.__pairs()
        return function(_, key)
            local following, value = next(raw, key)
            return following, view(value)
        end
    end
    metatable.__newindex = read_only
    return setmetatable({}, metatable)
end

function view(value)
    if rawequal(value, ABSENT) then return nil end
    if type(value) == "table" and not rawequal(value, ERROR) then return view_of(value) end
    return value
end

local function facts(kind)
    return setmetatable({}, {
        __index = function(_, name)
            if type(name) ~= "string" then return nil end
            return view(need(kind .. lower(name)))
        end,
        __newindex = read_only,
    })
end

local job_methods = {}
function job_methods.eval(_, expression)
    if type(expression) ~= "string" or find(expression, "\0", 1, true) then
        error("job:eval takes a ClassAd expression in quotes", 2)
    end
    return view(need("e:" .. expression))
end

local slot, node = facts "s:", facts "n:"
local job = setmetatable({}, {
    __pairs = function() error("the ad can't be listed: name the attributes", 2) end,
    __index = function(_, name)
        if type(name) ~= "string" then return nil end
        if job_methods[name] then return job_methods[name] end
        return view(need("j:" .. lower(name)))
    end,
    __newindex = read_only,
})

local function usage_at(path)
    return setmetatable({}, {
        __index = function(_, name)
            if type(name) ~= "string" then return nil end
            local whole = path .. lower(name)
            local value = need("u:" .. whole)
            if rawequal(value, GROUP) then return usage_at(whole .. ".") end
            return value
        end,
        __newindex = read_only,
    })
end
local usage = usage_at ""

-- "usage.Cpu.RecentCores" and "RequestCpus" taken apart once; what they lead to in the job at hand.
local function path_to(text, test)
    local root, rest = match(text, "^(%a+)%.(.+)$")
    root = root and ({job = job, slot = slot, node = node, usage = usage})[lower(root)]
    local path = {text = text, root = root or job, test = test}
    for name in gmatch(root and rest or text, "[^.]+") do path[#path + 1] = name end
    return path
end

local function at(path)
    local value = path.root
    for _, name in ipairs(path) do value = value[name] end
    return value
end

-- Tests of a value. Each is a method of strings too, where it makes sense: job.AcctGroup:under "cms".

local function argument(value, kind, name)
    if type(value) ~= kind then error(name .. " takes a " .. kind .. ", not " .. type(value), 3) end
    return value
end

local MAX_TEXT = 4096   -- bytes, of a text that is tested: a longer one passes none

local function is_under(text, group)
    if type(text) ~= "string" or #text > MAX_TEXT then return false end
    argument(group, "string", "under")
    text, group = lower(text), lower(group)
    return text == group or sub(text, 1, #group + 1) == group .. "."
end

-- Any pattern, letter by letter.
local function is_like_slowly(text, pattern)
    local t, p, star, mark = 1, 1, nil, nil
    while t <= #text do
        local letter = sub(pattern, p, p)
        if letter == "*" then
            star, mark, p = p, t, p + 1
        elseif letter ~= "" and (letter == "?" or letter == sub(text, t, t)) then
            t, p = t + 1, p + 1
        elseif star then
            mark = mark + 1
            t, p = mark, star + 1
        else
            return false
        end
    end
    while sub(pattern, p, p) == "*" do p = p + 1 end
    return p > #pattern
end

-- What stands between the stars of patterns without "?"; false for one that has to be compared slowly.
local pieces_of, pieces_kept = {}, 0
local MAX_PATTERN, MAX_PIECES_KEPT = 256, 256

local function pieces(pattern)
    local found = pieces_of[pattern]
    if not rawequal(found, nil) then return found end
    if pieces_kept >= MAX_PIECES_KEPT then pieces_of, pieces_kept = {}, 0 end
    found = #pattern <= MAX_PATTERN and not find(pattern, "?", 1, true) and {}
    if found then
        for piece in gmatch(pattern .. "*", "([^*]*)%*") do found[#found + 1] = piece end
    end
    pieces_of[pattern], pieces_kept = found, pieces_kept + 1
    return found
end

local function is_like(text, pattern)
    if type(text) ~= "string" or #text > MAX_TEXT then return false end
    argument(pattern, "string", "glob")
    local parts = pieces(pattern)
    if not parts then return is_like_slowly(text, pattern) end
    local first, last = parts[1], parts[#parts]
    if #parts == 1 then return text == first end
    if sub(text, 1, #first) ~= first then return false end
    local from, ends = #first + 1, #text - #last   -- where the middle pieces may begin, and where they end at most
    for i = 2, #parts - 1 do
        local _, to = find(text, parts[i], from, true)
        if not to then return false end
        from = to + 1
    end
    return from <= ends + 1 and sub(text, ends + 1) == last
end

local function is_equal(value, wanted)
    if type(value) == "string" and type(wanted) == "string" then return lower(value) == lower(wanted) end
    return value == wanted
end

local function is_one_of(value, wanted)
    if rawequal(value, ERROR) then return false end
    for _, one in ipairs(wanted) do
        if is_equal(value, one) then return true end
    end
    return false
end

local made_here = setmetatable({}, {__mode = "k"})   -- tests that run no code of a policy

-- `data` says what the test is, as a list of its name and values.
local function ours(test, data)
    made_here[test] = data or true
    return test
end

local function of_text(name, holds)
    return function(wanted)
        argument(wanted, "string", name)
        local fits, mistake = pcall(holds, "", wanted)
        if not fits then error(mistake, 2) end
        return ours(function(value) return type(value) == "string" and holds(value, wanted) end)
    end
end

local function of_number(name, holds)
    return function(bound)
        argument(bound, "number", name)
        return ours(function(value) return type(value) == "number" and holds(value, bound) end, {name, bound})
    end
end

local function matches(text, pattern)
    argument(pattern, "string", "matches")
    return type(text) == "string" and regex(text, pattern)
end

local function minutes(text)
    local hour, minute = match(text, "^(%d%d?):(%d%d)$")
    hour, minute = tointeger(tonumber(hour)), tointeger(tonumber(minute))
    if hour and (hour < 24 and minute < 60 or hour == 24 and minute == 0) then return hour * 60 + minute end
end

local function day_range(text)
    local first, last = match(lower(text), "^(%a%a%a)%-?(%a*)$")
    first, last = DAYS[first], last == "" and DAYS[first] or DAYS[last]
    if first and last then return first, last end
end

local HOURS = 'takes hours such as "22:00-06:00" or "mon-fri 08:00-18:00"'

-- Minutes of the day and days of the week, both ends of each.
local function hours(spec)
    local days, from, to = match(spec, "^(%a*%-?%a*) ?(%d%d?:%d%d)%-(%d%d?:%d%d)$")
    from, to = minutes(from or ""), minutes(to or "")
    local first, last = 0, 6
    if days and days ~= "" then first, last = day_range(days) end
    if from and to and first then return {from = from, to = to, first = first, last = last} end
end

-- The day is that on which the hours begin.
local function is_during(span)
    local from, to, first, last = span.from, span.to, span.first, span.last
    local now, day = clock.hour * 60 + clock.minute, clock.weekday
    local within = now >= from and now < to
    if from >= to then
        within = now >= from or now < to
        if now < to then day = (day + 6) % 7 end
    end
    local on_day = first <= last and day >= first and day <= last or first > last and (day >= first or day <= last)
    return within and on_day
end

local function during(spec)
    argument(spec, "string", "during")
    return is_during(hours(spec) or error("during " .. HOURS .. ", not " .. format("%q", sub(spec, 1, 40)), 2))
end

-- A share of all jobs, the same ones each time: by FNV-1a of GlobalJobId, its bits well mixed.
local function sample(share, salt)
    if type(share) ~= "number" or not (share >= 0 and share <= 1) then
        error("sample takes a share from 0 to 1, not " .. tostring(share), 2)
    end
    local text = tostring(need "j:globaljobid") .. "\0" .. tostring(salt or "")
    local hash = -3750763034362895579
    for i = 1, #text do hash = (hash ~ byte(text, i)) * 1099511628211 end
    hash = (hash ~ (hash >> 32)) * -7046029254386353131
    hash = hash ~ (hash >> 29)
    return (hash >> 11) * 2.0 ^ -53 < share
end

-- Whether another job had this key within so many days, as far as this process knows.
local function seen(key, days)
    if type(key) ~= "string" then return nil end
    days = days or 30
    if not (type(days) == "number" and days > 0 and days <= 365) then error("seen takes days from 1 to 365", 2) end
    return need("k:" .. days .. ":" .. sub(key, 1, 200))
end

-- Libraries: what is left of Lua's own, and what took unbounded time in one call rewritten.

local function pick(library, names)
    local picked = {}
    for name in gmatch(names, "%w+") do picked[name] = library[name] end
    return picked
end

local strings = pick(string, "byte char format len lower sub upper")
function strings.find(text, what, from)
    argument(text, "string", "find")
    argument(what, "string", "find")
    if #text * #what > 1 << 22 then return nil end
    return find(text, what, from, true)
end
strings.under = is_under
strings.glob = is_like
strings.matches = matches
strings.one_of = is_one_of
strict(strings, "string method ")

local tables = pick(table, "unpack")
local sort, concat = table.sort, table.concat
function tables.concat(list, separator)
    if #list > 10000 then error("concat: the list is too long", 2) end
    return concat(list, separator)
end
function tables.sort(list, before)
    if #list > 10000 then error("sort: the list is too long", 2) end
    return sort(list, before)
end
function tables.insert(list, position, value)
    if value == nil then
        list[#list + 1] = position
        return
    end
    for i = #list, position, -1 do list[i + 1] = list[i] end
    list[position] = value
end
function tables.remove(list, position)
    position = position or #list
    local value = list[position]
    for i = position, #list do list[i] = list[i + 1] end
    return value
end

-- `own` is what a file sees besides: rules and their job, or what triggers have.
local function environment(own)
    local env = pick(_G, "assert error ipairs pairs select tonumber tostring type")
    env.math = strict(pick(math, "abs ceil floor fmod huge max maxinteger min mininteger tointeger type"), "math.")
    env.string, env.table = strict(pick(strings, "byte char find format len lower sub upper"), "string."), strict(pick(tables, "concat insert remove sort unpack"), "table.")
    env.classad = strict({error = ERROR}, "classad.")
    function env.is_error(value) return rawequal(value, ERROR) end
    env.under, env.glob = of_text("under", is_under), of_text("glob", is_like)
    env.matches = of_text("matches", matches)
    env.at_least = of_number("at_least", function(a, b) return a >= b end)
    env.at_most = of_number("at_most", function(a, b) return a <= b end)
    env.above = of_number("above", function(a, b) return a > b end)
    env.below = of_number("below", function(a, b) return a < b end)
    function env.one_of(list)
        argument(list, "table", "one_of")
        return ours(function(value) return is_one_of(value, list) end)
    end
    env.during = during
    for name, value in pairs(own) do env[name] = value end
    local known = {}
    for name in pairs(env) do known[name] = true end
    return setmetatable(env, {__index = function(_, name)
        local advice = nearest(name, known)
        if LEVELS[name] then advice = format(": write it in quotes, %q", name) end
        if advice == "" and find(tostring(name), "^%u") then
            advice = format(": an attribute of the job is job.%s in a function(job), and %s = ... in a table of tests", name, name)
        end
        error(tostring(name) .. " is not known here" .. advice, 2)
    end})
end

-- Rules: what one may say, and what is wrong with it.

local function level_word(value)
    if type(value) == "string" and LEVELS[lower(value)] then return lower(value) end
    return NUMBERED[value]
end

local function number_from(least, most)
    return function(value)
        if type(value) == "number" and value >= least and value <= most then return value + 0.0 end
        return nil, format("is no number from %.7g to %.7g", least, most)
    end
end

local FIELDS = {}
function FIELDS.when(value)
    local kind = type(value)
    if kind == "function" or kind == "string" or kind == "table" then return value end
    return nil, "is no function, ClassAd expression or table of tests"
end
function FIELDS.level(value)
    local word = value == "requested" and value or level_word(value)
    return word, not word and "is no level (off, basic, io, profile, trace, or requested)" or nil
end
function FIELDS.cap(value)
    local word = level_word(value)
    return word, not word and "is no level (off, basic, io, profile or trace)" or nil
end
FIELDS.period = number_from(0.1, 3600)
FIELDS.for_seconds = number_from(1, 30 * 86400)
FIELDS.sample = number_from(0, 1)
FIELDS.priority = number_from(-1000, 1000)
FIELDS.max_jobs = number_from(0, 16384)
FIELDS.max_share = number_from(0, 1)
function FIELDS.per(value)
    if value == "owner" or value == "group" then return value end
    return nil, "is neither \"owner\" nor \"group\""
end
function FIELDS.during(value)
    local span = type(value) == "string" and hours(value)
    return span, not span and HOURS or nil
end
function FIELDS.reason(value)
    if type(value) ~= "string" or #value > MAX_REASON then return nil, "is no text of at most " .. MAX_REASON .. " bytes" end
    return value
end
function FIELDS.report(value)
    if type(value) == "boolean" then return value end
    return nil, "is neither true nor false"
end
function FIELDS.trace(value)
    if type(value) == "string" and #value <= MAX_TRACE then return value end
    return nil, "is no text of at most " .. MAX_TRACE .. " bytes: SPECs as of +JobLensTrace"
end
function FIELDS.sinks(value)
    local complaint = "is no list of at most 16 names of sinks"
    if type(value) ~= "table" or #value > 16 then return nil, complaint end
    local names = {}
    for i, name in ipairs(value) do
        if type(name) ~= "string" or #name > MAX_NAME then return nil, complaint end
        names[i] = name
    end
    return concat(names, "\n")
end

local function shown(value)
    if type(value) == "string" then return format("%q", sub(value, 1, 40)) end
    return type(value) == "number" and tostring(value) or "a " .. type(value)
end

local rules = {}   -- of all files, in order
local names = {}   -- name → file:line

local function line_of(text, key, from)
    local number = 0
    for line in gmatch(text .. "\n", "([^\n]*)\n") do
        number = number + 1
        if number >= from and type(key) == "string" and find(line, "%f[%w_]" .. key .. "%f[^%w_]") then return number end
    end
    return from
end

local function declare(file, text, line, name, spec)
    local function wrong(what, key)
        error(format("%s:%d: rule %q: %s", file, key and line_of(text, key, line) or line, name, what), 0)
    end
    if #rules >= MAX_RULES then wrong("is one more than " .. MAX_RULES .. " rules") end
    if names[name] then wrong("is declared in " .. names[name] .. " already: names are told to users, so each has its own") end
    if type(spec) ~= "table" then wrong("takes a table { ... }, not a " .. type(spec)) end
    local made = {file = file, line = line, name = name}
    local keys = {}
    for key in pairs(spec) do
        if type(key) ~= "string" then wrong("has an entry without a name") end
        keys[#keys + 1] = key
    end
    sort(keys)
    for _, key in ipairs(keys) do
        local check, value = FIELDS[key], spec[key]
        if not check then
            wrong(shown(key) .. " is nothing that a rule says" .. nearest(key, FIELDS), match(key, "^[%w_]+$"))
        end
        local checked, complaint = check(value)
        if complaint then wrong(key .. " = " .. shown(value) .. " " .. complaint, key) end
        made[key] = checked
    end
    if type(made.when) == "table" then
        made.tests = {}
        for key, test in pairs(made.when) do
            if type(key) ~= "string" then wrong("when has a test without an attribute's name", "when") end
            made.tests[#made.tests + 1] = path_to(key, test)
            made.runs_code = made.runs_code or type(test) == "function" and not made_here[test]
        end
        sort(made.tests, function(a, b) return a.text < b.text end)
    elseif type(made.when) == "string" then
        for root in gmatch("slot node usage", "%a+") do
            local path = match(" " .. made.when, "[^%w_.](" .. root .. "%.[%a_][%w_.]*)")
            if path then
                wrong(format('when asks the job\'s ad, which has no %s: write a table, { ["%s"] = ... }, or a function', path, path), "when")
            end
        end
        made.expression = "e:" .. made.when
    else
        made.asks, made.runs_code = made.when, made.when ~= nil
    end
    local quota = made.max_jobs or made.max_share
    if made.per and not quota then wrong("per belongs to a quota: give it max_jobs or max_share", "per") end
    local says_report = made.report ~= nil
    if not (made.level or made.cap or made.period or made.sinks or made.priority or quota or says_report or made.trace) then
        wrong("decides nothing: give it a level, cap, period, sinks, report, trace, priority, max_jobs or max_share")
    end
    rules[#rules + 1], names[name] = made, file .. ":" .. line
end

-- What Lua says of its grammar, for people who do not write it every day.
local ADVICE = {
    {"near '!'$", "not equal is ~=, and not is not"},
    {"near '[&|]'$", "&& is and, || is or"},
    {"near '#'$", "a comment begins with --"},
    {"near '//'$", "a comment begins with --"},
    {"^unfinished string", "a text ends on its line, with the quote it began with"},
    {"^syntax error near '%w+'$", "a rule's name stands in quotes"},
    {"^'%)' expected .*near '='$", "a rule says { ... }"},
    {"^'}' expected .*near '[%w_]+'$", "is a comma missing before it, or a } further up?"},
    {"near <eof>$", "each { has its }, each function and if its end"},
    {"^'end' expected", "each function and if has its end, and equal is =="},
    {"^'then' expected near '='$", "equal is =="},
    {"^'}' expected .*near '='$", 'a name with dots stands in brackets, ["usage.IdleSeconds"] = ...'},
    {"^unexpected symbol near ','$", "is a value or an end missing before it?"},
    {"^<eof> expected near 'end'$", "there is one end too many"},
}

local function advised(mistake)
    local what = match(mistake, "^[^:]*:%d+: (.*)$") or ""
    for _, advice in ipairs(ADVICE) do
        if find(what, advice[1]) then return mistake .. ": " .. advice[2] end
    end
    return mistake
end

-- Running what a policy says.

-- What calls a function, and ends it after so many instructions.
local function bounded_by(most)
    local function stop() error("ran for more than " .. most .. " instructions", 2) end
    return function(f, ...)
        debug.sethook(stop, "", most)
        local ok, result = pcall(f, ...)
        debug.sethook()
        return ok, result
    end
end

local bounded = bounded_by(INSTRUCTIONS)

local function told(problem)
    if type(problem) == "string" then return problem end
    return "raised an error that is not a string"
end

local function unload(first)
    while #rules > first do
        names[rules[#rules].name] = nil
        rules[#rules] = nil
    end
end

local function load_file(file, text)
    local before, open = #rules, 0
    local function rule(name, spec)
        local line = debug.getinfo(2, "l").currentline
        if type(name) ~= "string" or name == "" or #name > MAX_NAME or find(name, "[^\32-\126]") then
            error("a rule's name is 1 to " .. MAX_NAME .. " printable ASCII characters in quotes", 2)
        end
        if spec then return declare(file, text, line, name, spec) end
        open = open + 1
        return function(given)
            open = open - 1
            declare(file, text, line, name, given)
        end
    end
    local own = {rule = rule, job = job, slot = slot, node = node, usage = usage, sample = sample, seen = seen}
    local chunk, mistake = load(text, "@" .. file, "t", environment(own))
    local ok = chunk and true
    if chunk then
        loading = file
        ok, mistake = bounded(chunk)
        loading = nil
    else
        mistake = advised(mistake)
    end
    if ok and open > 0 then ok, mistake = false, file .. ':1: a rule says nothing: write rule "name" { ... }' end
    if ok and #rules == before then ok, mistake = false, file .. ':1: declares no rule: write rule "name" { ... }' end
    if not ok then
        unload(before)
        return nil, told(mistake)
    end
    return before
end

local function holds(test, value)
    if type(test) == "function" then return test(value) end
    if type(test) == "table" and not rawequal(test, ERROR) then return is_one_of(value, test) end
    return is_equal(value, test)
end

local unmet = ""   -- which part of the rule that was asked last does not hold, for explain

local function matched(made)
    unmet = "not within its hours (during)"
    if made.during and not is_during(made.during) then return false end
    unmet = "not in the sample"
    if made.sample and not sample(made.sample, made.name) then return false end
    unmet = "its function says no"
    if made.asks then return made.asks(job, slot, node, usage) end
    unmet = "its expression is not true"
    if made.expression then return need(made.expression) == true end
    for _, test in ipairs(made.tests or {}) do
        unmet = test.text
        local answer = holds(test.test, at(test))
        if not answer or rawequal(answer, ERROR) then
            unmet = test.text .. " is not as asked"
            return false
        end
    end
    return true
end

-- Texts with * or ? that a table compares as they stand: path, newline, text.
local function literal_globs(made)
    local found = {}
    local function look(path, text)
        if type(text) == "string" and find(text, "[*?]") then found[#found + 1] = path .. "\n" .. text end
    end
    for _, test in ipairs(made.tests or {}) do
        look(test.text, test.test)
        if type(test.test) == "table" and not rawequal(test.test, ERROR) then
            for _, one in ipairs(test.test) do look(test.text, one) end
        end
    end
    return concat(found, "\n\n")
end

local host = {job = job, ABSENT = ABSENT, ERROR = ERROR, GROUP = GROUP, load = load_file, unload = unload, nearest = nearest}

-- For triggers.lua, which has no rules.
host.environment, host.advised, host.told, host.holds, host.level_word = environment, advised, told, holds, level_word
host.shown, host.ours, host.bounded_by = shown, ours, bounded_by
function host.runs_code(test) return type(test) == "function" and not made_here[test] end
-- A test as a list of its name and values; nil where it is not known as such.
function host.data(test)
    local data = made_here[test]
    return type(data) == "table" and data or nil
end

function host.rule(index)
    local made = rules[index]
    local conditional = made.when ~= nil or made.during ~= nil or made.sample ~= nil
    local paths = {}
    for i, test in ipairs(made.tests or {}) do paths[i] = test.text end
    return made.file, made.line, made.name, made.level, made.cap, made.period, made.for_seconds, made.sinks,
        made.priority, made.max_jobs, made.max_share, made.per, made.reason, conditional, type(made.when) == "string" and made.when or nil,
        concat(paths, "\n"), made.runs_code or false, literal_globs(made), made.report,
        made.trace
end

function host.count() return #rules end

function host.begin(plain, hour, minute, weekday)
    values = plain
    clock.hour, clock.minute, clock.weekday = hour, minute, weekday
end

function host.put(key, value) values[key] = value end

function host.unmet() return unmet end

function host.trace(wanted) reads = wanted and {} or nil end

function host.reads() return concat(reads, "\0") end

-- true or false; nil and the key of a value that is not there; nil, nil and an error.
function host.match(index)
    local ok, answer = bounded(matched, rules[index])
    if ok then return answer and not rawequal(answer, ERROR) and true or false end
    if rawequal(answer, MISS) then return nil, missing end
    return nil, nil, told(answer)
end

local string_metatable = errs()
string_metatable.__index, string_metatable.__len = strings, nil
debug.setmetatable("", string_metatable)
return host
