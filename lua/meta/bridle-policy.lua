---@meta bridle.policy
-- Made by core/script/api_make.lua from core/script/api.def; not edited by hand.

---@class policy.RuleFields
---@field id string names the rule in decisions: lower-case letters, digits, `-`, `_`, `.`
---@field action string|string[] what it is about, such as `process.exec`; `*` is every action
---@field command? string|string[] of `process.exec`: patterns of one simple command
---@field path? string|string[] of `fs.read`, `fs.write`: patterns of paths in the workspace
---@field host? string|string[] of `network`: patterns of `host` or `host:port`
---@field text? string|string[] of every other action: patterns of its subject
---@field reason? string told to whoever is refused or asked; one line

---@class policy.BundleFields
---@field api integer 1
---@field name string names the bundle in records
---@field rules table a list of rules; lists in it are taken apart
---@field check? fun(request: policy.Request): string?, string? a last look, which can only make an answer stricter: it gives nothing, "ask" or "deny", and a reason
---@field actions? string|string[] actions of your own that the rules name

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
---@field argv? string[] the words of a command that is run without a shell

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

---What the bundle's `check` says of a request.
---Errors: An answer other than nothing, "ask" and "deny"; what `check` raises.
---@param bundle policy.Bundle
---@param request policy.Request
---@return string|nil effect
---@return string? reason
function policy.vote(bundle, request) end

return policy
