---@meta bridle.policy
-- Made by core/script/api_make.lua from core/script/api.def; not edited by hand.

---@class policy.RuleFields
---@field id string names the rule in decisions: lower-case letters, digits, `-`, `_`, `.`
---@field action string|string[] what it is about, such as `process.exec`; `*` is every action
---@field command? string|policy.Command|table of `process.exec`: patterns of one simple command, `policy.command` values, or a list of both
---@field path? string|string[] of `fs.read`, `fs.write`: patterns of paths in the workspace
---@field host? string|string[] of `network`: patterns of `host` or `host:port`
---@field text? string|string[] of every other action: patterns of its subject
---@field reason? string told to whoever is refused or asked; one line
---@field when? policy.When conditions that must hold as well
---@field accept? string|string[] warnings of the compiler to live with, such as `over-broad`

---@class policy.When
---@field tool? string|string[] patterns of the tool that is called
---@field model? string|string[] patterns of the model that calls it
---@field env? string|string[] patterns of environment variables that the call changes: `NAME` or `NAME=VALUE`; for an allow, all that it may change
---@field time? table `days` (`mon-fri`), `from`, `to` (`HH:MM`), `zone` (`local`, `utc`, `+02:00`)
---@field budget? table of `calls`, `tokens`, `asks`: `used_over`, `used_under`, `left_over`, `left_under`

---@class policy.CommandFields
---@field [integer] string|string[] the program, then the words of its sub-command; a list is one of them
---@field flags? string|table groups of spellings, of each of which one must be there
---@field without? string|string[] flags that must not be there
---@field arguments? string|string[] patterns: of a deny or an ask one argument matches, of an allow all

---@class policy.OtherwiseFields
---@field id string names it in decisions
---@field action string|string[] what it is about; `*` is every action
---@field reason? string told to whoever is asked; one line

---@class policy.GroupFields
---@field [integer] policy.Rule the rules; lists and groups in it are taken apart
---@field action? string|string[] for rules that name none
---@field reason? string for rules that give none
---@field when? policy.When conditions besides those of the rules

---@class policy.Command
---@field shown string how decisions show it

---@class policy.BundleFields
---@field api integer 1
---@field name string names the bundle in records
---@field rules table a list of rules, groups and checks; lists in it are taken apart
---@field check? fun(request: policy.Request): string?, string? the same as `policy.check("check", ...)` among the rules
---@field actions? string|string[] actions of your own that the rules name
---@field programs? table global options of programs, by name: `options`, `values`, `unsafe`, `rewrites`, `anywhere`
---@field extend? string|string[] bundles that are built in, whose rules count as well
---@field replace? string|string[] ids of their allow and ask rules, whose place rules of the same ids take

---@class policy.Rule
---@field id string its name
---@field effect string `deny`, `ask` or `allow`
---@field match string `any`, `command`, `path`, `host` or `text`
---@field reason? string as it was given

---@class policy.Bundle
---@field name string its name
---@field api integer 1

---@class policy.Request
---@field action string such as `process.exec`
---@field subject string what would be done, as it is asked about
---@field callId string the tool call
---@field effect string what the rules said: `allow` or `ask`
---@field manifest? string what the manifest said, if it spoke of this; never of a command with several parts
---@field argv? string[] the words of a command that is run without a shell
---@field tool? string the tool that is called, where it is known
---@field model? string the model that calls it
---@field env? string[] changes of the environment: `NAME=VALUE`, `NAME` where it is removed
---@field time? integer seconds since 1970
---@field zone? integer minutes that local time is ahead of UTC
---@field budget table of `calls`, `tokens`, `asks`: `used` and `left`

---The policy language, `local policy = require "bridle.policy"`. A policy file returns one bundle.
---Every rule that matches votes, the strictest vote wins (deny, then ask, then allow), and the
---order of rules never matters. What no rule matches is asked about. See bridle-policy(5).
local policy = {}

---A rule that allows, where nothing stricter matches.
---Errors: Unknown fields, a missing id or action, a pattern that could never match.
---@param fields policy.RuleFields
---@return policy.Rule rule
function policy.allow(fields) end

---A rule that asks the operator.
---Errors: As `policy.allow`.
---@param fields policy.RuleFields
---@return policy.Rule rule
function policy.ask(fields) end

---What a policy file returns.
---Errors: An api other than 1, elements of `rules` that are no rules, an id twice, unknown actions.
---@param fields policy.BundleFields
---@return policy.Bundle bundle
function policy.bundle(fields) end

---A last look under an id of its own, for the list of rules. It can only make an answer stricter:
---it gives nothing, "ask" or "deny", and a reason.
---Errors: An id that is none; no function.
---@param id string
---@param fn fun(request: policy.Request): string?, string?
---@return table check
function policy.check(id, fn) end

---A command by what it means: the program by the last part of its path, the sub-command behind
---global options, flags wherever they stand and however they are spelled. What the words alone
---cannot tell counts as a match for an ask or a deny, and as none for an allow.
---Errors: Options among the words, groups of flags that leave open whether one or both are meant.
---@param fields policy.CommandFields
---@return policy.Command command
function policy.command(fields) end

---A rule that denies, whatever other rules allow.
---Errors: As `policy.allow`.
---@param fields policy.RuleFields
---@return policy.Rule rule
function policy.deny(fields) end

---The rules of a bundle as plain data; what bridle-script compiles.
---Errors: A value that is no bundle.
---@param bundle policy.Bundle
---@return table data
function policy.export(bundle) end

---Rules that share an action, a reason or conditions; it stands where a rule stands.
---Errors: Fields that are not shared ones, an empty group, checks in it.
---@param fields policy.GroupFields
---@return table group
function policy.group(fields) end

---Asks where no other rule of the bundle speaks of the action. What the rules allow stays allowed,
---unlike with an ask rule for the whole action, which is stricter than every allow.
---Errors: Fields that it does not have: what is done otherwise has no pattern and no condition.
---@param fields policy.OtherwiseFields
---@return policy.Rule rule
function policy.otherwise(fields) end

---What the bundle's checks say of a request: the strictest answer, and whose it is.
---Errors: An answer other than nothing, "ask" and "deny"; what a check raises.
---@param bundle policy.Bundle
---@param request policy.Request
---@return string|nil effect
---@return string? reason
---@return string? id
function policy.vote(bundle, request) end

return policy
