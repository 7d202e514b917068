-- Regular expressions in time linear in the text: a nondeterministic automaton, all of whose states go on at once.
-- C matching is no choice: one call of it can run for ever without an instruction that a hook could count.
-- . * + ? {m,n} | ( ) (?: ) [a-z] [^a-z] ^ $ \d \w \s \D \W \S, and (?i) at the start: without regard to case.

local byte, lower, sub = string.byte, string.lower, string.sub
local MAX_PATTERN, MAX_TEXT, MAX_STATES, MAX_DEPTH = 200, 1024, 500, 50

local function set_of(ranges, negated, caseless)
    local set = {}
    for code = 0, 255 do set[code] = negated end
    for _, range in ipairs(ranges) do
        for code = range[1], range[2] do
            set[code] = not negated
            if caseless and code >= 65 and code <= 90 then set[code + 32] = not negated end
            if caseless and code >= 97 and code <= 122 then set[code - 32] = not negated end
        end
    end
    return set
end

local DIGIT, SPACE = {{48, 57}}, {{9, 13}, {32, 32}}
local WORD = {{48, 57}, {65, 90}, {95, 95}, {97, 122}}
local CLASSES = {d = DIGIT, w = WORD, s = SPACE}
local CONTROLS = {n = 10, t = 9, r = 13}

local function parse(pattern, caseless)
    local at, depth = 1, 0
    local function fail(what) error("regular expression " .. what .. " at character " .. at, 0) end
    local function peek() return sub(pattern, at, at) end
    local function take() at = at + 1 return sub(pattern, at - 1, at - 1) end

    local alternatives

    local function escaped()
        local letter = take()
        if letter == "" then fail("ends in a backslash") end
        local class = CLASSES[lower(letter)]
        if class then return class, letter ~= lower(letter) end
        local code = CONTROLS[letter] or byte(letter)
        if not CONTROLS[letter] and set_of(WORD, false)[code] then fail("has an unknown \\" .. letter) end
        return {{code, code}}, false
    end

    local function bracket()
        local negated, ranges = peek() == "^", {}
        if negated then take() end
        repeat
            local letter = take()
            if letter == "" then fail("has a [ without ]") end
            if letter == "\\" then
                local class, inverted = escaped()
                if inverted then fail("has a negated class within [ ]") end
                for _, range in ipairs(class) do ranges[#ranges + 1] = range end
            elseif peek() == "-" and sub(pattern, at + 1, at + 1) ~= "]" then
                take()
                ranges[#ranges + 1] = {byte(letter), byte(take()) or fail("has a [ without ]")}
            else
                ranges[#ranges + 1] = {byte(letter), byte(letter)}
            end
        until peek() == "]"
        take()
        return {set = set_of(ranges, negated, caseless)}
    end

    local function atom()
        local letter = take()
        if letter == "(" then
            depth = depth + 1
            if depth > MAX_DEPTH then fail("is nested too deeply") end
            if sub(pattern, at, at + 1) == "?:" then at = at + 2 end
            local inner = alternatives()
            if take() ~= ")" then fail("has a ( without )") end
            depth = depth - 1
            return inner
        elseif letter == "[" then
            return bracket()
        elseif letter == "." then
            return {set = set_of({{10, 10}}, true)}
        elseif letter == "^" or letter == "$" then
            return {anchor = letter}
        elseif letter == "\\" then
            local class, negated = escaped()
            return {set = set_of(class, negated, caseless)}
        elseif letter == "*" or letter == "+" or letter == "?" or letter == "{" then
            at = at - 1
            fail("has nothing to repeat")
        end
        return {set = set_of({{byte(letter), byte(letter)}}, false, caseless)}
    end

    local function number()
        local digits = ""
        while peek() ~= "" and byte(peek()) >= 48 and byte(peek()) <= 57 do digits = digits .. take() end
        return tonumber(digits)
    end

    local function bounds()
        local least = number() or fail("has a { without a number")
        local most = least
        if peek() == "," then take() most = number() end
        if take() ~= "}" then fail("has a { without }") end
        if least > 100 or (most and (most > 100 or most < least)) then fail("repeats too often") end
        return least, most
    end

    local function piece()
        local node = atom()
        while true do
            local letter = peek()
            if letter == "*" then node = {of = node, least = 0}
            elseif letter == "+" then node = {of = node, least = 1}
            elseif letter == "?" then node = {of = node, least = 0, most = 1}
            elseif letter ~= "{" then return node end
            take()
            if letter == "{" then
                local least, most = bounds()
                node = {of = node, least = least, most = most}
            end
        end
    end

    local function sequence()
        local nodes = {}
        while peek() ~= "" and peek() ~= "|" and peek() ~= ")" do nodes[#nodes + 1] = piece() end
        return {all = nodes}
    end

    function alternatives()
        local nodes = {sequence()}
        while peek() == "|" do take() nodes[#nodes + 1] = sequence() end
        return {any = nodes}
    end

    local tree = alternatives()
    if at <= #pattern then fail("has a ) without (") end
    return tree
end

-- The states of a tree that go on to `after`; a state is {set, after}, {anchor, after}, {after, other} or MATCH.
local function compile(tree)
    local MATCH, count = {}, 0
    local function state(fields)
        count = count + 1
        if count > MAX_STATES then error("regular expression is too large", 0) end
        return fields
    end
    local build
    local function repeated(node, after)
        if node.most then
            for _ = node.least + 1, node.most do
                after = state {after = build(node.of, after), other = after}
            end
        else
            local loop = state {other = after}
            loop.after = build(node.of, loop)
            after = loop
        end
        for _ = 1, node.least do after = build(node.of, after) end
        return after
    end
    function build(node, after)
        if node.set then return state {set = node.set, after = after} end
        if node.anchor then return state {anchor = node.anchor, after = after} end
        if node.of then return repeated(node, after) end
        if node.all then
            for i = #node.all, 1, -1 do after = build(node.all[i], after) end
            return after
        end
        local first = build(node.any[1], after)
        for i = 2, #node.any do first = state {after = first, other = build(node.any[i], after)} end
        return first
    end
    return build(tree, MATCH), MATCH
end

local function matcher(pattern)
    local caseless = sub(pattern, 1, 4) == "(?i)"
    if caseless then pattern = sub(pattern, 5) end
    local start, MATCH = compile(parse(pattern, caseless))
    return function(text)
        if #text > MAX_TEXT then return false end
        local current = {start}
        for at = 1, #text + 1 do
            local following, seen, code = {}, {}, byte(text, at)
            while #current > 0 do
                local now = current[#current]
                current[#current] = nil
                if now == MATCH then return true end
                if not seen[now] then
                    seen[now] = true
                    if now.set then
                        if code and now.set[code] then following[#following + 1] = now.after end
                    elseif now.anchor then
                        if now.anchor == "^" and at == 1 or now.anchor == "$" and not code then
                            current[#current + 1] = now.after
                        end
                    else
                        current[#current + 1] = now.after
                        current[#current + 1] = now.other
                    end
                end
            end
            following[#following + 1] = start
            current = following
        end
        return false
    end
end

local compiled, count = {}, 0

return function(text, pattern)
    local matches = compiled[pattern]
    if not matches then
        if #pattern > MAX_PATTERN then error("regular expression has more than " .. MAX_PATTERN .. " characters", 0) end
        if count >= 100 then compiled, count = {}, 0 end
        matches = matcher(pattern)
        compiled[pattern], count = matches, count + 1
    end
    return matches(text)
end
