# cmake --install: the programs lie together in libexec/bridle, because each finds the others beside
# itself (/proc/self/exe), and bin/bridle is a symbolic link to the client there. The weakened launcher
# and pid 1 are part of it for the controls of `bridle selftest --attack` alone; nothing else starts
# them. bridle-bench is not: it measures a build, against programs that are made for measuring.
include(GNUInstallDirs)
set(programs bridle bridled bridle-audit bridle-broker bridle-egress bridle-gateway bridle-image bridle-init
             bridle-launch bridle-promote bridle-script bridle-scripted bridle-session
             bridle-tls bridle-selftest bridle-attack bridle-launch-weak bridle-init-weak)
foreach(program ${programs})
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION libexec/bridle)
  endif()
endforeach()
install(CODE [[
  set(bin "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/bin")
  message(STATUS "Installing: ${bin}/bridle")
  file(MAKE_DIRECTORY "${bin}")
  file(CREATE_LINK ../libexec/bridle/bridle "${bin}/bridle" SYMBOLIC)
]])

# what editors and luacheck know of the Lua API (docs/lua-api.md)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/lua/meta DESTINATION share/bridle/lua)
# bridle.testing, for `busted --lpath=.../share/bridle/lua/?.lua`
install(DIRECTORY ${CMAKE_SOURCE_DIR}/share/lua/bridle DESTINATION share/bridle/lua)
# the shipped policies and recipes, to copy from (docs/cookbook.md); the programs have their own
install(DIRECTORY ${CMAKE_SOURCE_DIR}/policy DESTINATION share/bridle)
install(FILES ${CMAKE_SOURCE_DIR}/share/completions/bridle.bash
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME bridle)
install(FILES ${CMAKE_SOURCE_DIR}/share/completions/_bridle
        DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
if(TARGET man)
  foreach(section 1 5)
    install(DIRECTORY ${CMAKE_BINARY_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section}
            FILES_MATCHING PATTERN "*.${section}")
  endforeach()
endif()

# The units of the service, with the path of this installation.
install(CODE "set(units \"${CMAKE_SOURCE_DIR}/share/systemd\")")
install(CODE [[
  set(libexec "${CMAKE_INSTALL_PREFIX}/libexec/bridle")
  foreach(unit bridle.service bridle.socket)
    set(to "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/lib/systemd/system/${unit}")
    message(STATUS "Installing: ${to}")
    configure_file("${units}/${unit}" "${to}" @ONLY NEWLINE_STYLE UNIX)
  endforeach()
]])

# Its paths are those of a system, whose profiles are in /etc whatever the prefix is.
install(CODE "set(profile \"${CMAKE_SOURCE_DIR}/share/apparmor/bridle\")")
install(CODE [[
  if(CMAKE_INSTALL_PREFIX MATCHES "^/usr(/local)?/*$")
    file(INSTALL "${profile}" DESTINATION "/etc/apparmor.d")
  else()
    message(STATUS "No AppArmor profile: it allows /usr and /usr/local, not ${CMAKE_INSTALL_PREFIX}")
  endif()
]])
